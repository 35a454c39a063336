package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"shoal/internal/agent"
	"shoal/internal/term"
)

// pathsCommand is `shoal paths`: what an agent knows about the ways to its peers, and who holds which.
func pathsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "paths",
		Short: "Show the network paths to a peer, verify them, and show who holds which",
		Long: `A KV transfer goes where the switches' ECMP hash sends it, and its source port decides that. These commands show what an
agent knows about it: the ports that lead over each path to a peer (map), whether they really do (verify), and which
paths are held by whom (table). See docs/paths.md.`,
		Example: `  shoal paths map decode-3
  shoal paths map decode-3 --all --output json
  shoal paths verify decode-3
  shoal paths table --admin /run/shoal/agent.sock`,
	}
	c.AddCommand(pathsMapCommand(), pathsVerifyCommand(), pathsTableCommand())
	return c
}

// pathsFlags are those that all three have.
type pathsFlags struct{ admin, output, protocol string }

func (p *pathsFlags) bind(c *cobra.Command, protocol bool) {
	c.SilenceUsage, c.SilenceErrors = true, true
	c.Flags().StringVar(&p.admin, "admin", "", adminFlag+" (default "+strings.Join(defaultAdmins(), ", else ")+")")
	c.Flags().StringVar(&p.output, "output", "table", "table or json")
	if protocol {
		c.Flags().StringVar(&p.protocol, "protocol", "tcp", "tcp, udp or roce: the flows' protocol enters the hash")
	}
}

func (p *pathsFlags) check() error {
	if p.output != "table" && p.output != "json" {
		return fmt.Errorf("paths: --output %q is neither table nor json", p.output)
	}
	return nil
}

// show prints v as JSON, or else by table.
func (p *pathsFlags) show(cmd *cobra.Command, v any, table func(*term.Output)) error {
	if p.output == "json" {
		e := json.NewEncoder(cmd.OutOrStdout())
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	table(term.New(cmd.OutOrStdout()))
	return nil
}

// learnWithin is how long a command waits for a map that is being learned: asking for it is what begins it.
const learnWithin = 30 * time.Second

// pathMap asks for a map, and waits while it is being learned.
func (p *pathsFlags) pathMap(cmd *cobra.Command, q url.Values) (m agent.PathMap, err error) {
	o := term.New(cmd.ErrOrStderr())
	defer o.Progress("")
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	client := newAdminClient(p.admin, time.Minute)
	for began := time.Now(); ; {
		m = agent.PathMap{}
		if err := client.call(cmd.Context(), "/v1/paths/map?"+q.Encode(), nil, &m); err != nil {
			return m, fmt.Errorf("paths: %w", err)
		}
		if m.State != "learning" || time.Since(began) > learnWithin {
			return m, nil
		}
		o.Progress(fmt.Sprintf("paths: the ways to %s are being learned: %s, %.0f s", m.Peer, m.Reason, time.Since(began).Seconds()))
		select {
		case <-tick.C:
		case <-cmd.Context().Done():
			return m, cmd.Context().Err()
		}
	}
}

func pathsMapCommand() *cobra.Command {
	var p pathsFlags
	var all bool
	var format string
	c := &cobra.Command{Use: "map PEER", Short: "Show the source ports that lead over each path to a peer", Args: cobra.ExactArgs(1),
		Example: "  shoal paths map decode-3\n  MC_MLX5_QP_UDP_SPORTS=$(shoal paths map decode-3 --protocol roce --format mooncake)"}
	p.bind(c, true)
	c.Flags().BoolVar(&all, "all", false, "count all ports of the range, too; only where the network is described")
	c.Flags().StringVar(&format, "format", "", "mooncake: only a list of ports, one a path in turn, for MC_MLX5_QP_UDP_SPORTS")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := p.check(); err != nil {
			return err
		}
		if format != "" && format != "mooncake" {
			return fmt.Errorf("paths: --format %q is not mooncake", format)
		}
		q := url.Values{"peer": {args[0]}, "protocol": {p.protocol}}
		if all {
			q.Set("all", "1")
		}
		m, err := p.pathMap(cmd, q)
		if err != nil {
			return err
		}
		if format == "mooncake" {
			list := m.Interleaved(64)
			if len(list) == 0 {
				return fmt.Errorf("paths: no ports are known to %s: it is %s (%s)", m.Peer, m.State, m.Reason)
			}
			fmt.Fprintln(cmd.OutOrStdout(), list)
			return nil
		}
		return p.show(cmd, m, func(o *term.Output) {
			o.Println(fmt.Sprintf("to %s: %s -> %s, %s, source ports %d-%d; %s (%s)", m.Peer, m.From, m.To, m.Protocol, m.Ports.First, m.Ports.Last, mapState(o, m.State), m.Reason))
			t := term.NewTable(term.Right("PATH"), term.Left("VIA"), term.Right("FLOWS"), term.Right("ALL PORTS"), term.Left("PORTS"))
			for _, x := range m.Paths {
				total := "-"
				if x.All > 0 {
					total = strconv.Itoa(x.All)
				}
				t.Row(strconv.Itoa(x.Path), strings.Join(x.Via, " "), strconv.Itoa(x.Flows), total, somePorts(x.Ports))
			}
			o.Table(t)
		})
	}
	return c
}

func mapState(o *term.Output, s string) string {
	switch s {
	case "verified", "learned":
		return o.Green(s)
	case "described":
		return s
	}
	return o.Yellow(s)
}

// somePorts names the first few.
func somePorts(ports []uint16) string {
	var b strings.Builder
	for i, p := range ports {
		if i == 8 {
			fmt.Fprintf(&b, " and %d more", len(ports)-i)
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.Itoa(int(p)))
	}
	return b.String()
}

func pathsVerifyCommand() *cobra.Command {
	var p pathsFlags
	var ports int
	c := &cobra.Command{Use: "verify PEER", Short: "Probe a sample of the ports, and say whether they lead where the map says", Args: cobra.ExactArgs(1),
		Example: "  shoal paths verify decode-3 --ports 32"}
	p.bind(c, true)
	c.Flags().IntVar(&ports, "ports", 16, "how many ports to probe, at most 256")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := p.check(); err != nil {
			return err
		}
		q := url.Values{"peer": {args[0]}, "protocol": {p.protocol}, "ports": {strconv.Itoa(ports)}}
		if _, err := p.pathMap(cmd, q); err != nil {
			return err
		}
		var r agent.VerifyReply
		if err := newAdminClient(p.admin, 2*time.Minute).call(cmd.Context(), "/v1/paths/verify?"+q.Encode(), struct{}{}, &r); err != nil {
			return fmt.Errorf("paths: %w", err)
		}
		if err := p.show(cmd, r, func(o *term.Output) {
			o.Println(fmt.Sprintf("%d ports to %s probed in %d ms: %d right, %d wrong, %d without an answer; %s (%s)", r.Asked, r.Peer, r.TookMS, r.Right, r.Wrong, r.Silent, mapState(o, r.State), r.Reason))
			if len(r.Mismatch) > 0 {
				t := term.NewTable(term.Right("PORT"), term.Left("EXPECTED"), term.Left("SEEN"))
				for _, w := range r.Mismatch {
					t.Row(strconv.Itoa(int(w.Port)), w.Expected, w.Seen)
				}
				o.Table(t)
			}
		}); err != nil {
			return err
		}
		if r.Wrong > 0 {
			return fmt.Errorf("paths: %d of %d ports to %s lead elsewhere", r.Wrong, r.Asked, r.Peer)
		}
		return nil
	}
	return c
}

func pathsTableCommand() *cobra.Command {
	var p pathsFlags
	c := &cobra.Command{Use: "table", Short: "Show all reservations that an agent knows, and what is on each link", Args: cobra.NoArgs,
		Example: "  shoal paths table --output json"}
	p.bind(c, false)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := p.check(); err != nil {
			return err
		}
		var s agent.TableStatus
		if err := newAdminClient(p.admin, 10*time.Second).call(cmd.Context(), "/v1/paths/table", nil, &s); err != nil {
			return fmt.Errorf("paths: %w", err)
		}
		return p.show(cmd, s, func(o *term.Output) { printPathTable(o, &s) })
	}
	return c
}

func printPathTable(o *term.Output, s *agent.TableStatus) {
	o.Println(fmt.Sprintf("%s: policy %s, fabric %s, table %s, %d reservations", s.Self, s.Policy, dash(s.Fabric), s.Digest, len(s.Entries)))
	if x := s.Schedule; s.Policy == "shoal" || x.Waiters > 0 {
		o.Println(fmt.Sprintf("schedule: %s; %d wait or are announced, %d of them here; messages take up to %v, transfers %.2f times what is predicted", x.Mode, x.Waiters, x.Own,
			time.Duration(x.DelayUS)*time.Microsecond, float64(x.Slowdown)/1000))
	}
	if len(s.Entries) > 0 {
		t := term.NewTable(term.Left("OWNER"), term.Right("ID"), term.Left("PHASE"), term.Left("TO"), term.Right("LEFT"), term.Right("READY"), term.Right("END"), term.Left("LINKS"))
		for _, e := range s.Entries {
			t.Row(string(e.Owner), strconv.FormatUint(e.ID, 10), e.Phase, string(e.To), size(e.Bytes), clock(e.Ready), clock(e.End), strings.Join(e.Links, " "))
		}
		o.Table(t)
	}
	links := s.Links
	sort.SliceStable(links, func(i, j int) bool { return links[i].Flows > links[j].Flows })
	t := term.NewTable(term.Left("LINK"), term.Right("FLOWS"), term.Right("LEFT"), term.Right("CAPACITY"), term.Right("BACKGROUND"))
	n := 0
	for _, l := range links {
		if l.Flows == 0 && l.Background == 0 {
			continue
		}
		n++
		t.Row(l.Link, strconv.Itoa(l.Flows), size(l.Bytes), rate(l.Capacity), rate(l.Background))
	}
	if n > 0 {
		o.Table(t)
	}
}

func dash(s string) string {
	if s == "" {
		return "not described"
	}
	return s
}

// clock is a time of day, of microseconds since 1970; 0 is unknown.
func clock(us int64) string {
	if us == 0 {
		return "-"
	}
	return time.UnixMicro(us).Format("15:04:05.000")
}

func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return strconv.FormatInt(n, 10) + " B"
}

func rate(bps int64) string {
	switch {
	case bps <= 0:
		return "-"
	case bps >= 1e9:
		return fmt.Sprintf("%g Gb/s", float64(bps)/1e9)
	}
	return fmt.Sprintf("%g Mb/s", float64(bps)/1e6)
}
