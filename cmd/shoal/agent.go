package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"shoal/internal/agent"
)

func agentCommand() *cobra.Command {
	var file string
	scratch := agent.Defaults() // what flags are parsed into first: which ones were given, and where the file is
	c := &cobra.Command{
		Use:   "agent",
		Short: "Run one peer: beside an engine, or only routing",
		Long: `Runs one peer of a shoal until it is interrupted, then drains.

A setting is taken from its flag, else from the environment (SHOAL_ and the flag's name, as in SHOAL_PEER_LISTEN), else
from the file, else it has its default. Settings without a flag are in docs/configuration.md.`,
		Example: `  shoal agent --engine http://127.0.0.1:8000
  shoal agent --engine http://127.0.0.1:8000 --listen 0.0.0.0:8080 --peer-listen 0.0.0.0:8081 --gossip-listen 0.0.0.0:8082 \
      --join gpu1:8082 --key-file shoal.key --config agent.yaml
  shoal agent --emulated --policy round-robin`,
		Args: cobra.NoArgs,
	}
	bindAgent(c.Flags(), &scratch)
	c.Flags().StringVar(&file, "config", "", "YAML file (docs/configuration.md); unknown fields are errors")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := agentConfig(cmd.Flags(), file)
		if err != nil {
			return err
		}
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(gcPercent)
		}
		a, err := agent.New(cfg, buildVersion(), agent.NewLogger(&cfg))
		if err != nil {
			return err
		}
		return a.Run(cmd.Context())
	}
	return c
}

// gcPercent lets an agent's heap, which is some ten megabytes, grow to three times what is alive before it is collected,
// not twice: a tenth less CPU a request.
const gcPercent = 200

// bindAgent defines the flags of the settings that one would rather type than write down.
func bindAgent(f *pflag.FlagSet, c *agent.Config) {
	f.StringVar(&c.ID, "id", c.ID, "name of this peer in its shoal (default: host name and port)")
	f.StringVar(&c.Listen, "listen", c.Listen, "address of the OpenAI API")
	f.StringVar(&c.Engine.URL, "engine", c.Engine.URL, "URL of the engine beside this agent; none: it only routes")
	f.StringVar(&c.Engine.Kind, "engine-kind", c.Engine.Kind, "auto, llamacpp, openai or emulated")
	f.StringVar(&c.Engine.KeyFile, "engine-key-file", c.Engine.KeyFile, "file with the engine's API key")
	f.IntVar(&c.Engine.Limit, "engine-limit", c.Engine.Limit, "requests in flight at the engine; 0: no limit of ours")
	f.Int64Var(&c.Engine.CacheTokens, "engine-cache-tokens", c.Engine.CacheTokens, "prompt tokens that its prefix cache holds, where it does not tell")
	f.BoolVar(&c.Engine.Emulated, "emulated", c.Engine.Emulated, "start an emulated engine inside the agent: it computes nothing")
	f.StringVar(&c.Route.Policy, "policy", c.Route.Policy, "cost, longest-prefix, round-robin, random or local")
	f.StringVar(&c.Cluster.Name, "shoal", c.Cluster.Name, "name of the shoal")
	f.StringVar(&c.Cluster.Preset, "preset", c.Cluster.Preset, "local, lan or wan: how far the peers are from each other")
	f.StringVar(&c.Cluster.PeerListen, "peer-listen", c.Cluster.PeerListen, "address for the other peers (TCP)")
	f.StringVar(&c.Cluster.GossipListen, "gossip-listen", c.Cluster.GossipListen, "address for membership (TCP and UDP)")
	f.StringVar(&c.Cluster.Advertise, "advertise", c.Cluster.Advertise, "IP address that the other peers reach this one at")
	f.StringArrayVar(&c.Cluster.Join, "join", c.Cluster.Join, "gossip address of a peer, or a DNS name for several (repeatable)")
	f.StringVar(&c.Cluster.KeyFile, "key-file", c.Cluster.KeyFile, "file with the shoal's key (shoal keygen)")
	f.StringVar(&c.Admin, "admin-listen", c.Admin, "address of the admin API, /metrics, /healthz and /readyz")
	f.StringVar(&c.State, "state", c.State, "file that keeps what the engine has cached over a restart of the agent")
	f.BoolVar(&c.Insecure, "insecure", c.Insecure, "allow addresses beyond this machine without keys")
	f.StringVar(&c.LogLevel, "log-level", c.LogLevel, "debug, info, warn or error")
	f.DurationVar(&c.Drain, "drain", c.Drain, "how long a stopping agent waits for requests in flight")
}

// agentConfig puts together defaults, file, environment and the flags that were given, in this order.
func agentConfig(given *pflag.FlagSet, file string) (agent.Config, error) {
	c := agent.Defaults()
	if file == "" {
		file = os.Getenv("SHOAL_CONFIG")
	}
	if file != "" {
		if err := c.Load(file); err != nil {
			return c, err
		}
	}
	set := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	bindAgent(set, &c)
	var errs []error
	set.VisitAll(func(f *pflag.Flag) {
		g := given.Lookup(f.Name)
		env := "SHOAL_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, inEnv := os.LookupEnv(env)
		var err error
		switch {
		case g != nil && g.Changed:
			if list, ok := g.Value.(pflag.SliceValue); ok {
				err = f.Value.(pflag.SliceValue).Replace(list.GetSlice())
			} else {
				err = f.Value.Set(g.Value.String())
			}
		case inEnv:
			if list, ok := f.Value.(pflag.SliceValue); ok {
				err = list.Replace(strings.Split(value, ","))
			} else {
				err = f.Value.Set(value)
			}
			if err != nil {
				err = fmt.Errorf("environment %s=%q: %w", env, value, err)
			}
		}
		errs = append(errs, err)
	})
	if err := errors.Join(errs...); err != nil {
		return c, err
	}
	return c, c.Validate()
}
