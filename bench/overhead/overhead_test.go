package main

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"shoal/internal/term"
)

func newPrompts(t *testing.T) *prompts {
	t.Helper()
	text, err := newPool(1)
	if err != nil {
		t.Fatal(err)
	}
	return &prompts{model: "m", text: text, random: rand.New(rand.NewPCG(1, 1))}
}

func TestPromptsHaveTheirSizeAndShareTheirFirstHalf(t *testing.T) {
	p := newPrompts(t)
	for _, size := range []int{500, 10_000, 100_000} {
		halves, seen := map[string]int{}, map[string]bool{}
		for range 200 {
			var v struct {
				Messages  []struct{ Content string }
				MaxTokens int `json:"max_tokens"`
				Stream    bool
			}
			if err := json.Unmarshal(p.body(nil, size, true, 16), &v); err != nil {
				t.Fatal(err)
			}
			text := v.Messages[0].Content
			if len(text) != size || !v.Stream || v.MaxTokens != 16 {
				t.Fatalf("%d bytes, want %d", len(text), size)
			}
			if seen[text] {
				t.Fatal("a prompt came twice")
			}
			seen[text] = true
			halves[text[:size/2]]++
		}
		if len(halves) > groups || len(halves) < groups/2 {
			t.Errorf("%d bytes: %d first halves in 200 prompts of %d groups", size, len(halves), groups)
		}
	}
}

func TestAnswersAreCheckedToTheEnd(t *testing.T) {
	const one, done = `data: {"choices":[{"delta":{"content":"x"}}]}` + "\n\n", "data: [DONE]\n\n"
	const first = `data: {"choices":[{"delta":{"content":null}}]}` + "\n\n" + `data: {"choices":[{"delta":{"content": ""}}]}` + "\n\n"
	for _, c := range []struct {
		name, body string
		status     int
		stream     bool
		chunks     int
		want       string
	}{
		{"a plain answer", `{"choices":[{"message":{"content":"x y"}}]}`, 200, false, 1, ""},
		{"an empty answer", `{"choices":[{"message":{"content":""}}]}`, 200, false, 0, "without content"},
		{"an error", `{"error":{}}`, 503, false, 0, "status 503"},
		{"a stream", first + one + one + done, 200, true, 2, ""},
		{"a stream cut off", first + one, 200, true, 0, "complete: false"},
		{"an error event", one + `data: {"error":{"message":"died"}}` + "\n\n" + done, 200, true, 0, "died"},
		{"too many chunks", strings.Repeat(one, 17) + done, 200, true, 0, "17 chunks for 16 tokens"},
		{"nothing", done, 200, true, 0, "0 chunks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("X-Shoal-Peer", "a1")
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			}))
			defer s.Close()
			k, err := dial(strings.TrimPrefix(s.URL, "http://"), "a1")
			if err != nil {
				t.Fatal(err)
			}
			defer k.close()
			a, err := k.ask(newPrompts(t), 500, c.stream, 16)
			if c.want == "" {
				if err != nil || a.chunks != c.chunks || a.ttft <= 0 {
					t.Errorf("%+v, %v", a, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q, got %v", c.want, err)
			}
			k.serves = "a2"
			if _, err := k.ask(newPrompts(t), 500, c.stream, 16); err == nil {
				t.Error("another peer served, and nobody minded")
			}
		})
	}
}

func TestACrowdStopsInTimeAndCounts(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, `{"choices":[{"message":{"content":"x"}}]}`)
	}))
	defer s.Close()
	up := &setup{model: "m"}
	up.entry[direct] = strings.TrimPrefix(s.URL, "http://")
	up.pids[direct] = []int{os.Getpid()}
	w := crowd{clients: 4, size: 500, maxTokens: 16, during: 100 * time.Millisecond}
	got, err := w.run(t.Context(), up, direct, newPrompts(t).text, 1)
	if err != nil || got.requests < 4 || got.chunks != got.requests || got.took < w.during {
		t.Errorf("%+v, %v", got, err)
	}
	up.entry[direct] = "127.0.0.1:1"
	if _, err := w.run(t.Context(), up, direct, newPrompts(t).text, 1); err == nil || !strings.Contains(err.Error(), "direct: ") {
		t.Errorf("%v", err)
	}
}

func TestCPUTimeOfAProcessWithAnOddName(t *testing.T) {
	line := "12 (a) b (c)) S 1 12 12 0 -1 4194304 100 0 0 0 31 11 0 0 20 0 9 0 1 2 3"
	if got, err := parseStat([]byte(line)); err != nil || got != 42 {
		t.Errorf("%d, %v", got, err)
	}
	for _, bad := range []string{"", "12 (x) S 1", "no bracket at all in this line of more than twelve words that it would need 1 2"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q is no stat", bad)
		}
	}
}

func TestDifferencesAreTakenWithinARound(t *testing.T) {
	m := &measurement{times: map[cell]*[ways][][]time.Duration{}}
	c := cell{500, false}
	const ms = time.Millisecond
	m.times[c] = &[ways][][]time.Duration{
		direct: {{1 * ms, 2 * ms, 9 * ms}, {10 * ms, 20 * ms, 90 * ms}, {1 * ms, 2 * ms, 9 * ms}}, // the machine was busy in the second
		agent:  {{2 * ms, 3 * ms, 12 * ms}, {11 * ms, 22 * ms, 95 * ms}, {2 * ms, 3 * ms, 13 * ms}},
	}
	if got := m.added(agent, c, 50); got != 1000 {
		t.Errorf("p50 added: %v us", got)
	}
	if got := m.added(agent, c, 99); got != 4000 {
		t.Errorf("p99 added: %v us", got)
	}
	if got := m.level(direct, c, 50); got != 2000 {
		t.Errorf("p50 of the direct way: %v us", got)
	}
}

func TestMedianAndPercentileOfNothing(t *testing.T) {
	if median(nil) != 0 || percentile(nil, 50) != 0 {
		t.Error("not 0")
	}
	if got := median([]float64{4, 1, 3, 2}); got != 2 {
		t.Errorf("median %v", got)
	}
}

func TestTheTablesHaveEveryCell(t *testing.T) {
	m := newMeasurement(options{sizes: []int{500, 10_000}, clients: 64}, &setup{}, io.Discard)
	m.screen = term.New(io.Discard)
	for _, size := range m.opts.sizes {
		for _, stream := range []bool{false, true} {
			m.times[cell{size, stream}], m.loads[cell{size, stream}] = new([ways][][]time.Duration), new([ways][]total)
		}
	}
	var b bytes.Buffer
	m.write(&b)
	for _, want := range []string{"| 0.5 kB plain | ", "| 10 kB streamed | ", "| one hop | "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if n := strings.Count(b.String(), "\n| "); n != 3*2+4+4+4 {
		t.Errorf("%d rows:\n%s", n, b.String())
	}
}
