package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"shoal/internal/agent"
	"shoal/internal/peer"
	"shoal/internal/term"
	"shoal/internal/up"
)

// watchEvery is how often --watch asks again.
const watchEvery = time.Second

// statusCommand is `shoal status`: the shoal as one of its agents sees it.
func statusCommand() *cobra.Command {
	var addr, output string
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the peers of a shoal, what each holds, its load and its forwards",
		Long: `Show a shoal as one of its agents sees it. Without --admin, the agent of this machine is asked, or the first one of
` + "`shoal up`" + `. The columns:

  BLOCKS         text blocks (256 bytes of a prompt) that its engine has cached
  IN FLIGHT      requests that it has accepted and not answered yet
  RUN/WAIT       what its engine itself reports; - where it does not
  QUEUED         prompt tokens whose prefill is still to come
  STALE          since the last news of it
  FWD/DECL/FAIL  requests that the agent asked has sent it; of those, declined; of those, failed before their first byte`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("status: --output %q is neither table nor json", output)
			}
			addrs := defaultAdmins()
			if addr != "" {
				addrs = []string{strings.TrimSuffix(strings.TrimPrefix(addr, "http://"), "/")}
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			s := statusView{w: cmd.OutOrStdout(), out: term.New(cmd.OutOrStdout()), addrs: addrs, json: output == "json",
				admin: &up.Admin{Client: &http.Client{Timeout: 3 * time.Second}}}
			if watch {
				return s.watch(ctx)
			}
			return s.once(ctx)
		},
	}
	f := cmd.Flags()
	f.StringVar(&addr, "admin", "", "`address` (host:port) of an agent's admin API (default "+strings.Join(defaultAdmins(), ", else ")+")")
	f.StringVar(&output, "output", "table", "table or json")
	f.BoolVar(&watch, "watch", false, "show it again every second, until Ctrl-C")
	return cmd
}

// defaultAdmins are where an agent may be on this machine: one started by itself, and the first of `shoal up`.
func defaultAdmins() []string {
	return []string{agent.Defaults().Admin, "127.0.0.1:" + strconv.Itoa(up.AdminPort)}
}

// statusView asks an agent and prints what it says.
type statusView struct {
	w     io.Writer
	out   *term.Output
	admin *up.Admin
	addrs []string // tried in order
	json  bool
}

// ask returns the status of the first agent that answers.
func (v *statusView) ask(ctx context.Context) (*agent.Status, error) {
	var errs []error
	for _, a := range v.addrs {
		s, err := v.admin.Status(ctx, a)
		if err == nil {
			return s, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("status: no agent answers at %s: %w\nIs one running? Start a shoal with `shoal up`, or name an agent's admin address with --admin HOST:PORT (it is in the agent's log, and on loopback only unless told otherwise)",
		strings.Join(v.addrs, " or "), errors.Join(errs...))
}

func (v *statusView) once(ctx context.Context) error {
	s, err := v.ask(ctx)
	if err != nil {
		return err
	}
	return v.print(s)
}

// watch prints again and again; an agent that does not answer is said, and asked again.
func (v *statusView) watch(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		s, err := v.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if v.out.Terminal() {
			io.WriteString(v.w, "\x1b[H\x1b[2J") // home, and clear
		}
		if err != nil {
			v.out.Println(v.out.Red(err.Error()))
		} else if err := v.print(s); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if !v.out.Terminal() && !v.json {
			v.out.Println()
		}
	}
}

func (v *statusView) print(s *agent.Status) error {
	if v.json {
		e := json.NewEncoder(v.w)
		e.SetIndent("", "  ")
		return e.Encode(s)
	}
	state := v.out.Green(s.State)
	if s.State != "ready" {
		state = v.out.Yellow(s.State)
	}
	alive := 0
	for i := range s.Peers {
		if s.Peers[i].Alive {
			alive++
		}
	}
	line := fmt.Sprintf("%s is %s; %d of %d peers alive; policy %s; API %s; up %s; shoal %s", s.Self, state, alive, len(s.Peers), s.Policy,
		s.Gateway, (time.Duration(s.UptimeMS) * time.Millisecond).Round(time.Second), s.Version)
	if s.Insecure {
		line += "; " + v.out.Yellow("insecure")
	}
	v.out.Println(line)
	v.out.Table(statusTable(v.out, s))
	return nil
}

// statusTable is one line a peer. What is not known is a dash, and what one's own agent has no use for is empty.
func statusTable(o *term.Output, s *agent.Status) *term.Table {
	t := term.NewTable(term.Left("PEER"), term.Left("STATE"), term.Left("ENGINE"), term.Left("MODELS"), term.Right("BLOCKS"),
		term.Right("IN FLIGHT"), term.Right("RUN/WAIT"), term.Right("QUEUED"), term.Left("PUSH-BACK"), term.Right("RTT"), term.Right("STALE"),
		term.Right("FWD/DECL/FAIL"))
	for i := range s.Peers {
		p := &s.Peers[i]
		id, rtt, stale := string(p.ID), millis(p.RTT), "-"
		sent := count(p.Forwarded) + "/" + count(p.Declined) + "/" + count(p.Failed)
		if p.StaleMS >= 0 {
			stale = strconv.FormatInt(p.StaleMS, 10) + " ms"
			if p.StaleMS >= 1000 {
				stale = millis(time.Duration(p.StaleMS) * time.Millisecond)
			}
		}
		if p.Self {
			id, rtt, stale, sent = o.Bold(id+" (asked)"), "", "", ""
		} else if p.RTT == 0 {
			rtt = "-"
		}
		pushBack := "no"
		if p.Load.PushBack {
			pushBack = o.Yellow("yes")
		}
		t.Row(id, peerState(o, p), engineName(p), models(p.Models), strconv.Itoa(p.Blocks), strconv.Itoa(p.Load.InFlight),
			count(int64(p.Load.Running))+"/"+count(int64(p.Load.Waiting)), strconv.FormatInt(p.Load.QueuedTokens, 10), pushBack, rtt, stale,
			sent)
	}
	return t
}

func peerState(o *term.Output, p *agent.PeerStatus) string {
	switch {
	case !p.Alive:
		return o.Red("dead")
	case p.Load.Draining:
		return o.Yellow("draining")
	case p.Engine != "" && !p.Load.Up:
		return o.Yellow("engine down")
	}
	return o.Green("alive")
}

func engineName(p *agent.PeerStatus) string {
	switch {
	case p.Engine == "":
		return "none"
	case p.Emulated && p.Engine != "emulated":
		return p.Engine + " (emulated)"
	}
	return p.Engine
}

// models names at most two of them.
func models(names []string) string {
	if len(names) > 2 {
		return fmt.Sprintf("%s, %s and %d more", names[0], names[1], len(names)-2)
	}
	return strings.Join(names, ", ")
}

// count is a number, or a dash where it is not reported.
func count(n int64) string {
	if n == peer.Unknown {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func millis(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
