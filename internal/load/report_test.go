package load

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"shoal/internal/peer"
	"shoal/internal/term"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write the golden files")

// sample is a report made by hand: two peers, every kind of count, two kinds of failure.
func sample() *Report {
	const ms, unknown = time.Millisecond, peer.Unknown
	results := []Result{
		{Index: 0, TTFT: 400 * ms, TPOT: 20 * ms, Total: 600 * ms, Peer: "a1", Reason: "balance", Matched: 0, Prompt: 540, Cached: 0, Output: 11},
		{Index: 1, TTFT: 50 * ms, TPOT: 10 * ms, Total: 150 * ms, Peer: "a1", Reason: "prefix", Matched: 500, Prompt: 560, Cached: 480, Output: 11},
		{Index: 2, TTFT: 60 * ms, TPOT: 30 * ms, Total: 360 * ms, Peer: "a2", Reason: "prefix", Matched: 500, Prompt: 560, Cached: 500, Output: 11},
		{Index: 3, TTFT: 70 * ms, Total: 70 * ms, Peer: "a1", Matched: unknown, Prompt: 560, Cached: unknown, Output: 1},
		{Index: 4, Total: 5 * ms, Kind: Status, Status: 503, Detail: "every peer pushes back", Peer: "a1", Matched: unknown, Prompt: unknown, Cached: unknown, Output: unknown},
		{Index: 5, Total: 90 * ms, Kind: ErrorEvent, Detail: "the engine died", FirstByte: true, Peer: "a2", Matched: 500, Prompt: unknown, Cached: unknown, Output: unknown},
		{Index: 6, Total: 90 * ms, Kind: Unfinished, Peer: "a2", Matched: unknown, Prompt: unknown, Cached: unknown, Output: unknown},
	}
	p := &Report{Name: "cost", Workload: "few-shot", Digest: "0123456789abcdef", Seed: 1, Targets: []string{"http://127.0.0.1:8001"}, Model: "m",
		Stream: true, Arrivals: "closed loop, 4 clients", Ended: Interrupted, Planned: 200, Sent: 7, Seconds: 2}
	p.summarise(results, 2*time.Second)
	return p
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test ./internal/load -update writes it):\n%s", path, got)
	}
}

func TestTheReportInJSON(t *testing.T) {
	var b bytes.Buffer
	if err := sample().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", b.String())
}

func TestTheReportForPeople(t *testing.T) {
	var b bytes.Buffer
	sample().Write(term.New(&b))
	golden(t, "report.txt", b.String())
}

func TestReportsSideBySide(t *testing.T) {
	a, b := sample(), &Report{Name: "round-robin"}
	b.summarise(nil, 0)
	golden(t, "compare.txt", Compare(a, b).String())
}

func TestWhatNobodyReportedIsUnknownAndNotZero(t *testing.T) {
	p := &Report{}
	p.summarise([]Result{{Total: time.Second, Peer: "e1", Matched: peer.Unknown, Prompt: 9, Cached: peer.Unknown, Output: peer.Unknown}}, time.Second)
	if p.OK != 1 || p.HitRate != nil || p.Peers[0].HitRate != nil || p.Predicted != nil || p.TTFT.P50 != nil || p.TPOT.P50 != nil {
		t.Errorf("%+v", p)
	}
	var b bytes.Buffer
	p.WriteJSON(&b)
	for _, want := range []string{`"hit_rate": null`, `"predicted_tokens": null`, `"p50": null`, `"errors": []`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in %s", want, b.String())
		}
	}
	if s := Compare(p).String(); strings.Contains(s, "NaN") || !strings.Contains(s, "  -  ") {
		t.Error(s)
	}
}

func TestPercentilesAreTheNearestRank(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 50), func(n int) time.Duration { return time.Duration(n) }), 1, 200).Draw(t, "times")
		percent := rapid.IntRange(1, 100).Draw(t, "percent")
		quantiles(d) // sorts
		got := rank(d, percent)
		below, upto := 0, 0
		for _, x := range d {
			if x < got {
				below++
			}
			if x <= got {
				upto++
			}
		}
		if upto*100 < percent*len(d) || below*100 >= percent*len(d) {
			t.Fatalf("p%d of %v is %v", percent, d, got)
		}
	})
}
