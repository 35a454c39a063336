package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shoal/internal/load"
)

// chatEndpoint answers every chat by one chunk and counts that say that most was cached.
func chatEndpoint(t *testing.T, status int) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			io.WriteString(w, `{"data":[{"id":"m"}]}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Shoal-Peer", "a1")
		w.WriteHeader(status)
		io.WriteString(w, `data: {"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":10,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":8}}}`+"\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func runBench(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	c := benchCommand()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetOut(&out)
	c.SetErr(&errs)
	c.SetArgs(args)
	err = c.ExecuteContext(t.Context())
	if errs.Len() > 0 {
		t.Errorf("without a terminal there is no progress, yet: %q", errs.String())
	}
	return out.String(), err
}

func TestBenchPrintsATableOrJSON(t *testing.T) {
	url := chatEndpoint(t, 200)
	out, err := runBench(t, "--requests", "12", url)
	if err != nil || !strings.Contains(out, "12 of 12 requests sent") || !strings.Contains(out, "80.0 %") {
		t.Errorf("%v\n%s", err, out)
	}
	file := filepath.Join(t.TempDir(), "results.jsonl")
	out, err = runBench(t, "--requests", "12", "--output", "json", "--results", file, url)
	var p load.Report
	if err != nil || json.Unmarshal([]byte(out), &p) != nil || p.OK != 12 || p.Peers[0].Peer != "a1" {
		t.Errorf("%v\n%s", err, out)
	}
	if b, err := os.ReadFile(file); err != nil || bytes.Count(b, []byte("\n")) != 12 {
		t.Errorf("%v\n%s", err, b)
	}
}

func TestBenchFailsWhereEverythingFailed(t *testing.T) {
	out, err := runBench(t, "--requests", "3", chatEndpoint(t, 503))
	if err == nil || !strings.Contains(err.Error(), "all of 3 requests failed") || !strings.Contains(out, "status-503") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestBenchPlaysATrace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.jsonl")
	line := `{"timestamp":0,"input_length":600,"output_length":5,"hash_ids":[1,2]}` + "\n"
	if err := os.WriteFile(file, []byte(strings.Repeat(line, 300)), 0o600); err != nil {
		t.Fatal(err)
	}
	url := chatEndpoint(t, 200)
	for want, args := range map[string][]string{
		"200 of 200": nil,
		"250 of 250": {"--limit", "250"},
		"7 of 7":     {"--limit", "250", "--requests", "7"},
	} {
		out, err := runBench(t, append([]string{"--trace", file, "--block-tokens", "16", url}, args...)...)
		if err != nil || !strings.Contains(out, "\n"+want+" requests sent") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

func TestBenchSaysWhatIsWrong(t *testing.T) {
	for want, args := range map[string][]string{
		`--output "xml" is unknown`:          {"--output", "xml"},
		`--assign "luck" is unknown`:         {"--assign", "luck"},
		`--question-tokens "40" is not`:      {"--question-tokens", "40"},
		"--speed is about a trace":           {"--speed", "2"},
		"add --remote":                       {"http://192.0.2.1"},
		"both a rate and":                    {"--rate", "1", "--clients", "1"},
		"no such file":                       {"--trace", "none.jsonl"},
		"cannot be reached; is it running? ": {"http://127.0.0.1:1"},
	} {
		if _, err := runBench(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q, got %v", args, want, err)
		}
	}
}
