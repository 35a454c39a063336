package shoal

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shoal/internal/llama"
	"shoal/internal/up"
)

// realShoal is 3 real llama.cpp engines with real weights and 3 agents, by shoal up; skipped where they are not installed.
func realShoal(t *testing.T) (apis []string) {
	t.Helper()
	dir := os.Getenv("SHOAL_LLAMA_DIR")
	if dir == "" {
		dir = "../../.engines"
	}
	if _, err := os.Stat(filepath.Join(dir, "installed.json")); err != nil {
		t.Skipf("ABSENT: no real engines in %s (bin/shoal setup installs them; make test does)", dir)
	}
	ready := make(chan []string, 1)
	cfg := up.Defaults()
	cfg.LlamaDir, cfg.RunDir, cfg.Port, cfg.Exe = dir, t.TempDir(), 0, program
	cfg.OnReady = func(urls []string) { ready <- urls }
	var out buffer
	u, err := up.New(cfg, &out, &out)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- u.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("shoal up: %v", err)
		}
		if t.Failed() {
			t.Log(out.String())
		}
	})
	select {
	case urls := <-ready:
		for _, u := range urls {
			apis = append(apis, strings.TrimPrefix(u, "http://"))
		}
	case err := <-ended:
		ended <- err
		t.Fatalf("shoal up ended: %v\n%s", err, out.String())
	}
	return apis
}

// The main job, on real engines with real weights: an answer, plain and streamed; and a prefix of more than 1,000 tokens
// that came in at the first agent is found again from the third, by the engine's own count.
func TestRealEnginesAnswerAndReusePrefixesAcrossAgents(t *testing.T) {
	apis := realShoal(t)
	say := func(api, question string, stream bool, tokens int) *answer {
		body, _ := json.Marshal(map[string]any{"model": llama.ModelName, "max_tokens": tokens, "temperature": 0, "stream": stream,
			"messages": []map[string]string{{"role": "system", "content": llama.SystemPrompt}, {"role": "user", "content": question}}})
		a := post(t.Context(), api, body, stream)
		if a.status != http.StatusOK || !a.done {
			t.Fatalf("%+v", a)
		}
		return a
	}
	for _, stream := range []bool{false, true} {
		a := say(apis[1], "What is the capital of France?", stream, 24)
		text := a.body
		if stream {
			var b strings.Builder
			for _, part := range strings.Split(text, `"content":"`)[1:] {
				b.WriteString(part[:strings.IndexByte(part, '"')])
			}
			text = b.String()
		}
		if !strings.Contains(text, "Paris") {
			t.Errorf("stream %v: the answer is %q", stream, text)
		}
	}

	var prefix strings.Builder
	for i := range 50 {
		fmt.Fprintf(&prefix, "Fact %d: the river of region %d flows past %d old mills and %d bridges. ", i, i, i*7%31, i*5%17)
	}
	first := say(apis[0], prefix.String()+"What is fact 3?", false, 4)
	holder := first.header.Get("X-Shoal-Peer")
	if first.all < 1000 {
		t.Fatalf("the prefix has only about %d tokens", first.all)
	}
	var second *answer
	eventually(t, "the third agent knows who holds the prefix", func() bool {
		second = say(apis[2], prefix.String()+"Which bridge is the oldest?", true, 4)
		return second.header.Get("X-Shoal-Peer") == holder
	})
	if second.cached*10 < (second.all-20)*9 {
		t.Errorf("the engine reused %d of %d tokens, at %s", second.cached, second.all, holder)
	}
	t.Logf("prefix held by %s: %d of the second prompt's %d tokens were reused, by the engine's own count", holder, second.cached, second.all)
}
