// Command shoal routes LLM requests to the peer that will answer first: one agent runs beside each inference engine, and
// every agent decides by itself. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker from the checkout's tag or commit.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := rootCommand().ExecuteContext(ctx); err != nil {
		if !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "shoal:", err)
		}
		os.Exit(1)
	}
}

func rootCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "shoal",
		Short: "Peer-to-peer routing of LLM requests by prefix cache, load and distance",
		Long: `Shoal runs beside every LLM inference engine (vLLM, SGLang, llama.cpp, Ollama) and decides, without a central router,
which peer serves a request: the one where it will answer first, given what each has cached, how busy it is and how far away.`,
		Example: `  shoal up                                          # 3 real llama.cpp engines and 3 agents on this machine
  shoal up --engine http://gpu1:8000 --engine http://gpu2:8000
  shoal agent --engine http://127.0.0.1:8000 --join gpu1:8082
  shoal status --watch`,
		Version:       buildVersion(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.AddCommand(agentCommand(), upCommand(), statusCommand(), benchCommand(), demoCommand(), engineCommand(), keygenCommand(), setupCommand(), pathsCommand(), labCommand(), simCommand())
	return c
}

func buildVersion() string {
	if version != "dev" {
		return version
	}
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" && b.Main.Version != "(devel)" {
		return b.Main.Version
	}
	return version
}
