package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"shoal/internal/ecmp"
	"shoal/internal/peer"
)

// leafSpine describes a fabric of two leaves with these hosts, named h0, h1 and so on; the first half hangs on the first leaf. The
// addresses are of loopback: the test sees which port a transfer takes, and no switch looks at it.
func leafSpine(hosts, spines int) ecmp.Config {
	var c ecmp.Config
	for i := range hosts {
		c.Hosts = append(c.Hosts, ecmp.Host{Name: fmt.Sprint("h", i), Addr: loopback(i), Leaf: fmt.Sprint("leaf", 2*i/hosts)})
	}
	for i := range 2 {
		name := fmt.Sprint("leaf", i)
		c.Switches = append(c.Switches, ecmp.Switch{Name: name, Model: ecmp.Model{Kind: ecmp.Murmur3, Seed: uint32(i + 1)}})
	}
	for i := range spines {
		name := fmt.Sprint("spine", i)
		c.Switches = append(c.Switches, ecmp.Switch{Name: name, Model: ecmp.Model{Kind: ecmp.Murmur3, Seed: uint32(100 + i)}})
		for l := range 2 {
			c.Links = append(c.Links, ecmp.LinkConfig{From: fmt.Sprint("leaf", l), To: name, Capacity: 100_000_000_000})
		}
	}
	return c
}

func loopback(i int) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 1, byte(i + 1)}) }

// fabricFile writes such a description.
func fabricFile(t *testing.T, hosts, spines int) string {
	t.Helper()
	b, err := yaml.Marshal(leafSpine(hosts, spines))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "fabric.yaml")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// pathShoal starts agents on such a fabric, which all know each other.
func pathShoal(t *testing.T, hosts, spines int, change func(i int, c *Config)) []*Agent {
	t.Helper()
	file := fabricFile(t, hosts, spines)
	var all []*Agent
	for i := range hosts {
		all = append(all, start(t, func(c *Config) {
			c.ID = fmt.Sprint("h", i)
			c.Paths.Listen, c.Paths.Fabric, c.Paths.Probe = loopback(i).String()+":0", file, "off"
			if i > 0 {
				c.Cluster.Join = []string{all[0].Addrs().Gossip}
			}
			if change != nil {
				change(i, c)
			}
		}))
	}
	for _, a := range all {
		until(t, "all know all", func() bool {
			n := 0
			for _, p := range a.Status().Peers {
				if p.Alive && p.Transfer != "" {
					n++
				}
			}
			return n == hosts
		})
	}
	return all
}

// post asks an agent's admin API, and gives every line of the answer.
func post[T any](t *testing.T, a *Agent, path string, in any) (lines []T, status int) {
	t.Helper()
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.Post("http://"+a.Addrs().Admin+path, "application/json", bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(res.Body)
		t.Logf("%s: %s: %s", path, res.Status, b)
		return nil, res.StatusCode
	}
	for d := json.NewDecoder(res.Body); d.More(); {
		var v T
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, v)
	}
	return lines, http.StatusOK
}

func get[T any](t *testing.T, a *Agent, path string) (v T) {
	t.Helper()
	res, err := http.Get("http://" + a.Addrs().Admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&v); err != nil {
		t.Fatal(path, err)
	}
	return v
}

func tableOf(t *testing.T, a *Agent) TableStatus { return get[TableStatus](t, a, "/v1/paths/table") }

// sameTables waits until all agents hold so many reservations, and the same ones.
func sameTables(t *testing.T, all []*Agent, entries int) {
	t.Helper()
	var last []string
	defer func() {
		if t.Failed() {
			t.Log(last)
		}
	}()
	until(t, fmt.Sprintf("%d reservations in every table", entries), func() bool {
		last = last[:0]
		for _, a := range all {
			s := tableOf(t, a)
			last = append(last, fmt.Sprintf("%s %d", s.Digest, len(s.Entries)))
		}
		return last[0][17:] == fmt.Sprint(entries) && !slices.ContainsFunc(last, func(x string) bool { return x != last[0] })
	})
}

func TestReservationsReachEveryoneAndEnd(t *testing.T) {
	all := pathShoal(t, 4, 4, nil)
	var ids []uint64
	paths := map[int]bool{}
	for i := range 4 { // four flows from the first leaf, four spines
		r, _ := post[ReserveReply](t, all[i%2], "/v1/paths/reserve", ReserveRequest{Peer: peer.ID(fmt.Sprint("h", 2+i%2)), Bytes: 1 << 30})
		if len(r) != 1 || r[0].State != "granted" || len(r[0].Legs) != 1 || !r[0].Legs[0].Reserved || r[0].Legs[0].Port == 0 || r[0].LeaseMS != 3000 {
			t.Fatalf("%+v", r)
		}
		paths[r[0].Legs[0].Path] = true
		ids = append(ids, r[0].ID)
		until(t, "the other one knows", func() bool { return len(tableOf(t, all[1-i%2]).Entries) == i+1 })
	}
	if len(paths) != 4 {
		t.Fatalf("four flows share %v", paths)
	}
	sameTables(t, all, 4) // the far hosts too, to whom no datagram goes
	if s := tableOf(t, all[3]); s.Entries[0].Links[0][:4] != "leaf" || s.Fabric == "" || s.Policy != "least" {
		t.Fatalf("%+v", s)
	}
	if r, _ := post[RenewReply](t, all[0], "/v1/paths/renew", HoldRequest{ID: ids[0], Left: 1 << 29}); !r[0].Held {
		t.Fatal("a reservation is not held any more")
	}
	for i, id := range ids {
		post[struct{}](t, all[i%2], "/v1/paths/release", HoldRequest{ID: id})
	}
	sameTables(t, all, 0)
	if r, _ := post[RenewReply](t, all[0], "/v1/paths/renew", HoldRequest{ID: ids[0]}); r[0].Held {
		t.Fatal("a released reservation is held")
	}
}

// A dead peer holds nothing: at once where membership notices.
func TestADeadPeersReservationsEnd(t *testing.T) {
	t.Parallel()
	all := pathShoal(t, 2, 2, func(_ int, c *Config) { c.Paths.Lease = time.Minute })
	dying := start(t, func(c *Config) {
		c.ID, c.Paths.Listen, c.Paths.Fabric, c.Paths.Probe = "h9", "127.0.0.10:0", all[0].cfg.Paths.Fabric, "off"
		c.Cluster.Join = []string{all[0].Addrs().Gossip}
	})
	until(t, "h1 is known", func() bool {
		for _, p := range dying.Status().Peers {
			if p.ID == "h1" && p.Transfer != "" {
				return true
			}
		}
		return false
	})
	if r, code := post[ReserveReply](t, dying, "/v1/paths/reserve", ReserveRequest{Peer: "h1", Bytes: 1}); code != 200 || !r[0].Fallback || !strings.Contains(r[0].Reason, "h9") {
		t.Fatalf("%d %+v: a host that the description does not know", code, r)
	}
	r, _ := post[ReserveReply](t, all[0], "/v1/paths/reserve", ReserveRequest{Peer: "h1", Bytes: 1 << 20, Flows: 2})
	if len(r[0].Legs) != 2 || r[0].Legs[0].Path == r[0].Legs[1].Path {
		t.Fatalf("two flows of one transfer: %+v", r)
	}
	until(t, "h1 knows", func() bool { return len(tableOf(t, all[1]).Entries) == 2 })
	all[0].cluster.Load().Close() // gone without a word
	until(t, "they have ended", func() bool { return len(tableOf(t, all[1]).Entries) == 0 })
}

func TestIntentsAreKnownAndStart(t *testing.T) {
	all := pathShoal(t, 2, 2, nil)
	r, _ := post[ReserveReply](t, all[0], "/v1/paths/reserve", ReserveRequest{Peer: "h1", Bytes: 1 << 20, Intent: true, ReadyUS: 60_000_000})
	if r[0].State != "intended" || len(r[0].Legs) != 0 || r[0].ID == 0 {
		t.Fatalf("%+v", r)
	}
	until(t, "h1 knows", func() bool { s := tableOf(t, all[1]); return len(s.Entries) == 1 && s.Entries[0].Phase == "intent" })
	s, _ := post[ReserveReply](t, all[0], "/v1/paths/start", HoldRequest{ID: r[0].ID})
	if s[0].State != "granted" || len(s[0].Legs) != 1 || s[0].Legs[0].Port == 0 {
		t.Fatalf("%+v", s)
	}
	until(t, "h1 knows", func() bool { s := tableOf(t, all[1]); return len(s.Entries) == 1 && s.Entries[0].Phase == "active" })
	if _, code := post[ReserveReply](t, all[0], "/v1/paths/start", HoldRequest{ID: 7}); code != http.StatusBadRequest {
		t.Fatalf("starting nothing: %d", code)
	}
}

// Reservations at the same moment, while messages take 50 ms: once they have settled nobody shares a path while another is free.
func TestSimultaneousReservationsMoveApart(t *testing.T) {
	all := pathShoal(t, 6, 4, func(_ int, c *Config) {
		c.Paths.Delay, c.Paths.Lease = 50*time.Millisecond, time.Minute
	})
	type granted struct {
		a *Agent
		r ReserveReply
	}
	for round := range 5 {
		ch := make(chan granted, 3)
		for i := range 3 { // three flows at once, four spines
			go func() {
				r, _ := post[ReserveReply](t, all[i], "/v1/paths/reserve", ReserveRequest{Peer: "h3", Bytes: 1 << 30, Policy: []string{"ark", "least"}[round%2]})
				ch <- granted{all[i], r[0]}
			}()
		}
		var held []granted
		for range 3 {
			held = append(held, <-ch)
		}
		until(t, "no two flows on one path", func() bool {
			on := map[int]int{}
			for i := range held {
				h := &held[i]
				n, _ := post[RenewReply](t, h.a, "/v1/paths/renew", HoldRequest{ID: h.r.ID, Left: 1 << 30}) // a chunk boundary
				if len(n[0].Legs) > 0 {
					h.r.Legs = n[0].Legs
				}
				on[h.r.Legs[0].Path]++
			}
			return len(on) == 3
		})
		for _, h := range held {
			post[struct{}](t, h.a, "/v1/paths/release", HoldRequest{ID: h.r.ID})
		}
		sameTables(t, all[:3], 0)
	}
}

// Loads of what reserves nothing count; ports are exported in turn.
func TestBackgroundIsAvoidedAndPortsAreExported(t *testing.T) {
	all := pathShoal(t, 2, 2, nil)
	if _, code := post[struct{}](t, all[0], "/v1/paths/load", map[string]int64{"leaf0->spine0": 90_000_000_000}); code != http.StatusOK {
		t.Fatal(code)
	}
	for range 3 {
		r, _ := post[ReserveReply](t, all[0], "/v1/paths/reserve", ReserveRequest{Peer: "h1", Bytes: 1 << 20, Protocol: "roce"})
		l := r[0].Legs[0]
		if !slices.Contains(l.Via, "spine1") || l.Port < 0xC000 || ecmp.PortOfFlowLabel(l.Label) != l.Port {
			t.Fatalf("%+v", l)
		}
		post[struct{}](t, all[0], "/v1/paths/release", HoldRequest{ID: r[0].ID})
	}
	m := get[PathMap](t, all[0], "/v1/paths/map?peer=h1&protocol=roce&all=1")
	if m.State != described || len(m.Paths) != 2 || m.Paths[0].All+m.Paths[1].All != 0x4000 {
		t.Fatalf("%+v", m)
	}
	list := strings.Split(m.Interleaved(4), ",")
	want := []string{fmt.Sprint(m.Paths[0].Ports[0]), fmt.Sprint(m.Paths[1].Ports[0]), fmt.Sprint(m.Paths[0].Ports[1]), fmt.Sprint(m.Paths[1].Ports[1])}
	if !slices.Equal(list, want) {
		t.Fatalf("%v, want %v", list, want)
	}
}

func TestTheAdminSocketIsOfThisUserOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	start(t, func(c *Config) { c.AdminSocket = path })
	fi, err := os.Stat(path)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", fi, err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	res, err := client.Get("http://agent/healthz")
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(err)
	}
	res.Body.Close()
	c := Defaults()
	c.AdminSocket = path
	if _, err := (&Agent{cfg: c}).listenSocket(); err == nil {
		t.Fatal("two agents at one socket")
	}
}

// The example of the description is one.
func TestTheDocumentedFabricIsRead(t *testing.T) {
	b, err := os.ReadFile("../../docs/paths.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), "### The file `paths.fabric`\n```yaml\n")
	text, _, ok := strings.Cut(text, "```")
	file := filepath.Join(t.TempDir(), "fabric.yaml")
	os.WriteFile(file, []byte(text), 0o600)
	f, err := readFabric(file)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	r, err := f.Route("prefill-0", "decode-0")
	if err != nil || len(r.Paths()) != 2 {
		t.Fatal(err)
	}
	os.WriteFile(file, []byte(text+"colour: red\n"), 0o600)
	if _, err := readFabric(file); err == nil || !strings.Contains(err.Error(), "colour") {
		t.Fatalf("an unknown field: %v", err)
	}
}

// A reservation of RoCE's keeps its protocol for as long as it is held.
func TestReservationsKeepTheirWays(t *testing.T) {
	all := pathShoal(t, 2, 4, nil)
	r, _ := post[ReserveReply](t, all[0], "/v1/paths/reserve", ReserveRequest{Peer: "h1", Bytes: 1 << 20, Protocol: "roce", Intent: true})
	s, _ := post[ReserveReply](t, all[0], "/v1/paths/start", HoldRequest{ID: r[0].ID})
	if l := s[0].Legs[0]; l.Port < 0xC000 || ecmp.PortOfFlowLabel(l.Label) != l.Port || s[0].ID == 0 {
		t.Fatalf("%+v", s)
	}
	m := get[PathMap](t, all[0], "/v1/paths/map?peer=h1&protocol=roce")
	if l := s[0].Legs[0]; !slices.Contains(m.Paths[l.Path].Ports, l.Port) {
		t.Fatalf("%+v is not of the map of RoCE's ports", l)
	}
	ports := map[uint16]bool{}
	for range 4 { // flows of different requests on the same path have ports of their own
		r, _ := post[ReserveReply](t, all[0], "/v1/paths/reserve", ReserveRequest{Peer: "h1", Bytes: 1, Flows: 4})
		for _, l := range r[0].Legs {
			if ports[l.Port] {
				t.Fatalf("port %d is given out twice", l.Port)
			}
			ports[l.Port] = true
		}
	}
}

// The mover's own reservations are not the API's to end.
func TestOnlyWhatTheAPIGaveOutIsReleasedThere(t *testing.T) {
	all := pathShoal(t, 2, 2, nil)
	w, err := all[0].paths.to(target{peer: "h1", proto: ecmp.TCP})
	if err != nil {
		t.Fatal(err)
	}
	h, err := all[0].paths.hold(t.Context(), w, all[0].paths.policy, 1<<20, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	post[struct{}](t, all[0], "/v1/paths/release", HoldRequest{ID: h.legs[0].ID})
	if s := tableOf(t, all[0]); len(s.Entries) != 1 {
		t.Fatalf("%+v", s.Entries)
	}
	h.release()
	sameTables(t, all, 0)
}

func TestPagesInBrowsersAreRefused(t *testing.T) {
	all := pathShoal(t, 2, 2, nil)
	for _, c := range []struct {
		host, origin string
		want         int
	}{
		{"", "", 200}, {"localhost:8083", "", 200}, {"[::1]:8083", "", 200}, {"evil.example:8083", "", 403}, {"", "http://evil.example", 403},
	} {
		r, _ := http.NewRequest("POST", "http://"+all[0].Addrs().Admin+"/v1/paths/release", strings.NewReader(`{"id":1}`))
		r.Header.Set("Content-Type", "application/json")
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.host != "" {
			r.Host = c.host
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != c.want {
			t.Errorf("%+v: %d", c, res.StatusCode)
		}
	}
}

// The ways to as many targets as there may be are kept, and one more makes room.
func TestWaysMakeRoom(t *testing.T) {
	all := pathShoal(t, 2, 2, nil)
	p := all[0].paths
	for port := range MaxWays + 3 {
		if _, err := p.to(target{peer: "h1", proto: ecmp.TCP, port: uint16(port + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	p.mu.Lock()
	n := len(p.ways)
	p.mu.Unlock()
	if n != MaxWays {
		t.Fatalf("%d are kept", n)
	}
	if _, err := p.to(target{peer: "h7", proto: ecmp.TCP}); err == nil {
		t.Fatal("ways to nobody")
	}
}
