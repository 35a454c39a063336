package agent

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

// Each metric of paths and transfers says what it counts, in seconds where it is a time, and has its line in docs/paths.md.
func TestPathMetricsAreExplained(t *testing.T) {
	doc, err := os.ReadFile("../../docs/paths.md")
	if err != nil {
		t.Fatal(err)
	}
	a := start(t, func(c *Config) { c.ID, c.Paths.Listen, c.Paths.Probe = "a", loopback(0).String()+":0", "off" })
	res, err := http.Get("http://" + a.Addrs().Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		about, ok := strings.CutPrefix(line, "# HELP ")
		name, help, _ := strings.Cut(about, " ")
		if !ok || !strings.HasPrefix(name, "shoal_path_") && !strings.HasPrefix(name, "shoal_transfer") {
			continue
		}
		n++
		if strings.HasPrefix(help, "See ") || len(help) < 20 {
			t.Errorf("%s says %q", name, help)
		}
		if !strings.Contains(string(doc), "\n| `"+name+"` | ") {
			t.Errorf("%s has no line in docs/paths.md", name)
		}
		for _, unit := range []string{"_us", "_ms", "_ns"} {
			if strings.Contains(name+"_", unit+"_") {
				t.Errorf("%s is not in seconds", name)
			}
		}
	}
	if documented := strings.Count(string(doc), "\n| `shoal_path") + strings.Count(string(doc), "\n| `shoal_transfer"); n == 0 || documented != n {
		t.Errorf("%d metrics, and %d lines in docs/paths.md", n, documented)
	}
}
