package agent

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/node"
)

func TestTransfersTakeThePortsOfTheirPath(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	all := pathShoal(t, 2, 4, func(i int, c *Config) { c.Paths.Dir, c.Paths.Chunk, c.Paths.MaxBytes = dirs[i], 64<<10, 1<<30 })
	payload := make([]byte, 3<<20+17)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range payload {
		payload[i] = byte(rng.Uint32())
	}
	if err := os.WriteFile(filepath.Join(dirs[0], "kv"), payload, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, policy := range []string{"ecmp", "ark", "least", "split"} {
		r, _ := post[TransferReply](t, all[0], "/v1/transfers", TransferRequest{Peer: "h1", File: "kv", To: "kv-" + policy, Policy: policy})
		last := r[len(r)-1]
		if !last.Done || last.Error != "" || last.Moved != int64(len(payload)) || last.Fallback {
			t.Fatalf("%s: %+v", policy, r)
		}
		got, err := os.ReadFile(filepath.Join(dirs[1], "kv-"+policy))
		if err != nil || !bytes.Equal(got, payload) {
			t.Fatalf("%s: %d bytes of %d, %v", policy, len(got), len(payload), err)
		}
	}
	// A pull: the other side sends, so its table has the reservation.
	before := tableOf(t, all[0]).Counters["path_reserved"]
	p, _ := post[TransferReply](t, all[1], "/v1/transfers", TransferRequest{Peer: "h0", File: "kv", To: "pulled", Pull: true})
	if !p[0].Done || p[0].Moved != int64(len(payload)) || tableOf(t, all[0]).Counters["path_reserved"] != before+1 {
		t.Fatalf("%+v", p)
	}
	if got, _ := os.ReadFile(filepath.Join(dirs[1], "pulled")); !bytes.Equal(got, payload) {
		t.Fatal("what was pulled differs")
	}
	if n := all[0].paths.mover.Stats().Unpinned; n != 0 {
		t.Fatalf("%d connections left from a port of no path", n)
	}
	sameTables(t, all, 0)
}

func TestWhatTransfersRefuse(t *testing.T) {
	dir := t.TempDir()
	all := pathShoal(t, 2, 2, func(i int, c *Config) {
		if i == 0 {
			c.Paths.Dir = dir
		}
	})
	os.WriteFile(filepath.Join(dir, "kv"), []byte("x"), 0o600)
	for name, q := range map[string]TransferRequest{
		"a file for who takes none":  {Peer: "h1", File: "kv"},
		"a file outside":             {Peer: "h1", File: "../kv"},
		"a file that is not there":   {Peer: "h1", File: "no"},
		"more than may be taken in":  {Peer: "h1", Bytes: 1 << 50},
		"nothing":                    {Peer: "h1"},
		"both":                       {Peer: "h1", File: "kv", Bytes: 5},
		"a peer that nobody knows":   {Peer: "h7", Bytes: 5},
		"no peer":                    {Peer: "", Bytes: 5},
		"a policy that nobody knows": {Peer: "h1", Bytes: 5, Policy: "best"},
	} {
		r, code := post[TransferReply](t, all[0], "/v1/transfers", q)
		if code == http.StatusOK && r[len(r)-1].Error == "" {
			t.Errorf("%s passes: %+v", name, r)
		}
	}
	for _, bad := range []string{`{"peer":"h1","bytes":1,"colour":"red"}`, `{`, `[]`} {
		res, err := http.Post("http://"+all[0].Addrs().Admin+"/v1/paths/reserve", "application/json", strings.NewReader(bad))
		if err != nil || res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %v %v", bad, res.StatusCode, err)
		}
		res.Body.Close()
	}
	res, err := http.Post("http://"+all[0].Addrs().Admin+"/v1/paths/reserve", "text/plain", strings.NewReader(`{"peer":"h1","bytes":1}`))
	if err != nil || res.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("what any page in a browser can send: %v %v", res.StatusCode, err)
	}
	res.Body.Close()
}

// A peer that is back at another address gets its transfers there.
func TestAPeerThatHasMovedIsFoundAgain(t *testing.T) {
	all := pathShoal(t, 2, 2, nil)
	if r, _ := post[TransferReply](t, all[0], "/v1/transfers", TransferRequest{Peer: "h1", Bytes: 1000}); r[len(r)-1].Error != "" {
		t.Fatalf("%+v", r)
	}
	was, _ := all[0].paths.to(target{peer: "h1", proto: ecmp.TCP})
	all[1].locked(func(n *node.Node, _ time.Duration) { n.SetIdentity("test", "", "127.0.1.2:1") })
	until(t, "the new address is known", func() bool {
		w, err := all[0].paths.to(target{peer: "h1", proto: ecmp.TCP})
		return err == nil && w.addr != was.addr
	})
	// What its document says is wrong by now; its ticket is right.
	r, _ := post[TransferReply](t, all[0], "/v1/transfers", TransferRequest{Peer: "h1", Bytes: 1000})
	if last := r[len(r)-1]; last.Error != "" || !last.Fallback || last.AnyPath != 1000 {
		t.Fatalf("%+v", last)
	}
}

// Where no path is known every transfer has a port of its own, so that ECMP spreads them.
func TestWithoutAMapEveryTransferHasAPortOfItsOwn(t *testing.T) {
	all := pathShoal(t, 2, 2, func(_ int, c *Config) { c.Paths.Fabric = "" })
	w, err := all[0].paths.to(target{peer: "h1", proto: ecmp.TCP})
	if err != nil || w.usable() {
		t.Fatalf("%+v %v", w, err)
	}
	h, err := all[0].paths.hold(t.Context(), w, all[0].paths.policy, 1000, time.Time{})
	if err != nil || len(h.Route().Legs) != 1 || !h.Route().Legs[0].Fresh || len(h.Route().Legs[0].Ports) != 0 {
		t.Fatalf("%+v %v", h.Route(), err)
	}
	for range 3 {
		r, _ := post[TransferReply](t, all[0], "/v1/transfers", TransferRequest{Peer: "h1", Bytes: 300_000})
		if last := r[len(r)-1]; last.Error != "" || !last.Fallback || last.AnyPath != 300_000 {
			t.Fatalf("%+v", last)
		}
	}
}
