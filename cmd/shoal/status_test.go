package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"shoal/internal/agent"
	"shoal/internal/peer"
)

var testStatus = agent.Status{
	Self: "a1", Version: "0.1", Policy: "cost", UptimeMS: 61_000, State: "ready", Gateway: "127.0.0.1:8080",
	Peers: []agent.PeerStatus{
		{ID: "a1", Self: true, Alive: true, Engine: "llamacpp", Models: []string{"m"}, Blocks: 1234,
			Load: peer.Load{Up: true, InFlight: 2, Running: 1, Waiting: 1, QueuedTokens: 900}},
		{ID: "a2", Alive: true, Engine: "emulated", Emulated: true, Models: []string{"k", "l", "m", "n"}, RTT: 210 * time.Microsecond, StaleMS: 85,
			Load: peer.Load{Up: true, PushBack: true, Running: peer.Unknown, Waiting: peer.Unknown}, Forwarded: 7, Declined: 2, Failed: 1},
		{ID: "a3", StaleMS: 3210, Load: peer.Load{Running: peer.Unknown, Waiting: peer.Unknown}},
		{ID: "a4", Alive: true, Engine: "openai", StaleMS: peer.Unknown, Load: peer.Load{Running: peer.Unknown, Waiting: peer.Unknown}},
	},
}

func runStatus(t *testing.T, args ...string) (string, error) {
	var out bytes.Buffer
	c := statusCommand()
	c.SetOut(&out)
	c.SetArgs(args)
	err := c.Execute()
	return out.String(), err
}

func TestStatusShowsEveryPeer(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/status" {
			http.NotFound(w, r)
			return
		}
		json.NewEncoder(w).Encode(&testStatus)
	}))
	defer srv.Close()
	got, err := runStatus(t, "--admin", srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	want := `a1 is ready; 3 of 4 peers alive; policy cost; API 127.0.0.1:8080; up 1m1s; shoal 0.1
PEER        STATE        ENGINE    MODELS           BLOCKS  IN FLIGHT  RUN/WAIT  QUEUED  PUSH-BACK      RTT  STALE  FWD/DECL/FAIL
a1 (asked)  alive        llamacpp  m                  1234          2       1/1     900  no
a2          alive        emulated  k, l and 2 more       0          0       -/-       0  yes        0.21 ms  85 ms          7/2/1
a3          dead         none                            0          0       -/-       0  no               -  3.2 s          0/0/0
a4          engine down  openai                          0          0       -/-       0  no               -      -          0/0/0
`
	if got != want {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
	got, err = runStatus(t, "--admin", strings.TrimPrefix(srv.URL, "http://"), "--output", "json")
	if err != nil {
		t.Fatal(err)
	}
	var back agent.Status
	if err := json.Unmarshal([]byte(got), &back); err != nil || len(back.Peers) != len(testStatus.Peers) {
		t.Errorf("the JSON does not read back: %v\n%s", err, got)
	}
}

func TestStatusSaysWhatToDoWhereNoAgentAnswers(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	notAgent, gone := strings.TrimPrefix(srv.URL, "http://"), ""
	dead := httptest.NewServer(http.NotFoundHandler())
	gone = strings.TrimPrefix(dead.URL, "http://")
	dead.Close()
	defer srv.Close()
	for _, c := range []struct{ addr, want string }{
		{gone, "connection refused"},
		{notAgent, "answers 404"},
		{"no address", "not an admin address"},
	} {
		_, err := runStatus(t, "--admin", c.addr)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "shoal up") || !strings.Contains(err.Error(), "--admin") {
			t.Errorf("%s: got %v, want %q and what to do", c.addr, err, c.want)
		}
	}
	if _, err := runStatus(t, "--output", "xml"); err == nil || !strings.Contains(err.Error(), "neither table nor json") {
		t.Errorf("--output xml: %v", err)
	}
}
