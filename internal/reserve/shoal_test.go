package reserve

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
)

// mesh is hosts whose messages take no time, for scenarios in words. Transfers end when the scenario says so.
type mesh struct {
	testing.TB
	out     strings.Builder
	names   []peer.ID
	tables  map[peer.ID]*Table
	perLeaf int
	now     time.Duration
	paths   map[[2]int][]ecmp.Path
	ids     map[string]uint64 // of a transfer, by its two ends: h0>h2
	names2  map[peer.ID]map[uint64]string
}

func newMesh(t testing.TB, leaves, spines, perLeaf int, change func(*Config)) *mesh {
	m := &mesh{TB: t, perLeaf: perLeaf, tables: map[peer.ID]*Table{}, ids: map[string]uint64{}, names2: map[peer.ID]map[uint64]string{}, paths: map[[2]int][]ecmp.Path{}}
	for a := range leaves {
		for b := range leaves {
			m.paths[[2]int{a, b}] = spread(spines, a, b)
		}
		m.paths[[2]int{a, a}] = []ecmp.Path{{}}
	}
	cfg := Defaults()
	cfg.Lease = time.Hour
	change(&cfg)
	for i := range leaves * perLeaf {
		id := peer.ID(fmt.Sprint("h", i))
		x, err := New(cfg, id, 1, rand.New(rand.NewPCG(uint64(i), 1)))
		if err != nil {
			t.Fatal(err)
		}
		x.efficiency = 1 << efficiencyBits // round numbers
		x.SetPaths(m.between, gigabits(100))
		m.names, m.tables[id], m.names2[id] = append(m.names, id), x, map[uint64]string{}
	}
	return m
}

func (m *mesh) between(src, dst peer.ID) []ecmp.Path {
	i, j := slices.Index(m.names, src), slices.Index(m.names, dst)
	return m.paths[[2]int{i / m.perLeaf, j / m.perLeaf}]
}

func (m *mesh) wall() time.Duration { return noon + m.now }

// settle delivers what there is to say, and starts whose turn it is, until nothing changes any more.
func (m *mesh) settle() {
	for quiet := false; !quiet; {
		quiet = true
		for _, id := range m.names {
			x := m.tables[id]
			for _, msg := range x.Take(nil) {
				quiet = false
				for _, y := range m.names {
					if y != id {
						m.tables[y].Heard(m.now, m.wall(), id, &msg)
					}
				}
			}
		}
		for _, id := range m.names {
			ids, _ := m.tables[id].Admit(m.now, m.wall(), nil)
			for _, n := range ids {
				var g Grant
				if !m.tables[id].Start(m.now, m.wall(), n, &g) {
					m.Fatalf("%d was admitted, and has ended", n)
				}
				m.granted(id, m.names2[id][n], &g)
				quiet = false
			}
		}
	}
}

func (m *mesh) granted(src peer.ID, name string, g *Grant) {
	if g.Queued {
		m.ids[name] = g.ID
		m.names2[src][g.ID] = name
		fmt.Fprintf(&m.out, "%v %s waits\n", m.now, name)
		return
	}
	m.ids[name] = g.ID
	fmt.Fprintf(&m.out, "%v %s starts", m.now, name)
	for _, l := range g.Legs {
		e := m.tables[src].find(l.ID).entry
		fmt.Fprintf(&m.out, " over %d (%d MB", l.Path, l.Share/1e6)
		if e.End > 0 {
			fmt.Fprintf(&m.out, ", until %v", (time.Duration(e.End)*time.Microsecond - noon).Round(100*time.Microsecond))
		}
		m.out.WriteByte(')')
	}
	m.out.WriteByte('\n')
}

// to goes on to a time, by way of the times at which tables want to be asked.
func (m *mesh) to(when time.Duration) {
	for {
		next := when
		for _, id := range m.names {
			if _, n := m.tables[id].Admit(m.now, m.wall(), nil); n > m.now {
				next = min(next, n)
			}
		}
		m.now = next
		m.settle()
		if next == when {
			return
		}
	}
}

func TestTheRuleInScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/shoal", func(t *testing.T, path string) {
		var m *mesh
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			arg := func(name string, otherwise string) string {
				if !d.HasArg(name) {
					return otherwise
				}
				var s string
				d.ScanArgs(t, name, &s)
				return s
			}
			number := func(name string, otherwise int) (n int) {
				fmt.Sscan(arg(name, fmt.Sprint(otherwise)), &n)
				return n
			}
			length := func(name string) time.Duration {
				x, err := time.ParseDuration(arg(name, "0s"))
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				return x
			}
			if d.Cmd == "fabric" {
				m = newMesh(t, number("leaves", 2), number("spines", 2), number("hosts", 2), func(c *Config) {
					c.MaxWait = max(length("maxwait"), time.Millisecond)
					if !d.HasArg("maxwait") {
						c.MaxWait = Defaults().MaxWait
					}
				})
				return ""
			}
			m.out.Reset()
			name := d.CmdArgs[0].Key
			a, b, _ := strings.Cut(name, ">")
			src, dst := peer.ID(a), peer.ID(b)
			x := m.tables[src]
			switch d.Cmd {
			case "send", "announce":
				s, err := x.Paths(m.between(src, dst), gigabits(100))
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				req := Request{Dst: dst, Bytes: int64(number("mb", 0)) * 1e6, Set: s, Policy: Shoal, Rate: int64(number("gbps", 100)) * 1e9}
				if d.Cmd == "announce" {
					req.Phase, req.Ready = Intent, (m.wall() + length("in")).Microseconds()
				}
				var g Grant
				if err := x.Reserve(m.now, m.wall(), &req, &g); err != nil {
					d.Fatalf(t, "%v", err)
				}
				m.granted(src, name, &g)
			case "end":
				if !x.Release(m.now, m.wall(), m.ids[name]) {
					d.Fatalf(t, "%s has ended already", name)
				}
			case "ready":
				if !x.Ready(m.now, m.wall(), m.ids[name], (m.wall() + length("in")).Microseconds()) {
					d.Fatalf(t, "%s has begun already", name)
				}
			case "progress":
				x.Renew(m.now, m.wall(), m.ids[name], int64(number("left", 0))*1e6)
				fmt.Fprintf(&m.out, "until %v\n", (time.Duration(x.find(m.ids[name]).entry.End)*time.Microsecond - noon).Round(100*time.Microsecond))
			case "to":
				when, err := time.ParseDuration(name)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				m.to(when)
			case "backlog":
				fmt.Fprintf(&m.out, "%d MB\n", m.tables["h0"].Backlog(src)/1e6)
			default:
				d.Fatalf(t, "no command is called %s", d.Cmd)
			}
			m.settle()
			for _, id := range m.names {
				m.tables[id].auditSchedule(t)
			}
			return m.out.String()
		})
	})
}
