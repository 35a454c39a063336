package study

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"shoal/internal/sim"
	"shoal/internal/sim/control"
)

// A run's file is JSON lines, each an object with one of four members: run (the first), flows, sample, end (the last). A
// file of its final name is complete. The name holds the run's key, so that different studies can share a directory.
type line struct {
	Run    *Header         `json:"run,omitempty"`
	Flows  *FlowTimes      `json:"flows,omitempty"`
	Sample *control.Sample `json:"sample,omitempty"`
	End    *End            `json:"end,omitempty"`
}

// Header says what a run was.
type Header struct {
	Format   int     `json:"format"`
	Key      string  `json:"key"` // of all that decides it
	Program  string  `json:"program"`
	Variant  string  `json:"variant,omitempty"`
	Workload string  `json:"workload"`
	QPS      float64 `json:"qps,omitempty"`
	Seed     uint64  `json:"seed,omitempty"`
	Policy   string  `json:"policy"`
	Model    string  `json:"model"`
}

// FlowTimes are those of all transfers, in the order of the workload.
type FlowTimes struct {
	FCT  []int64 `json:"fct_ns"`  // from when its bytes were ready to the last acknowledgement
	Wait []int64 `json:"wait_ns"` // the part of it before the first byte was sent
}

// End closes a run.
type End struct {
	Counts  control.Counts `json:"counts"`
	Seconds float64        `json:"seconds"` // of virtual time
	Packets int64          `json:"packets,omitempty"`
	Digest  string         `json:"digest"`
	Took    float64        `json:"took_seconds"` // of the machine's time
}

// Result is one run as its file tells it.
type Result struct {
	Header
	FlowTimes
	Samples []control.Sample
	End     End
}

const (
	resultFormat  = 1
	resultSuffix  = ".jsonl"
	partSuffix    = ".part"
	maxResultLine = 64 << 20
)

// newResult takes over what a run has shown.
func newResult(h Header, c *control.Result, took time.Duration) *Result {
	r := &Result{Header: h, Samples: c.Samples, End: End{Counts: c.Counts, Seconds: c.End.Seconds(), Packets: c.Packets, Digest: c.Digest.String(), Took: took.Seconds()}}
	for i := range c.Transfers {
		t := &c.Transfers[i]
		r.FCT = append(r.FCT, t.FCT().Nanoseconds())
		r.Wait = append(r.Wait, (t.Started - t.Ready).Nanoseconds())
	}
	return r
}

// digest is of what came out, the samples aside.
func (r *Result) digest() sim.Digest {
	var d sim.Digest
	for _, b := range []byte(r.End.Digest) {
		d.Add(int64(b))
	}
	d.Add(r.FCT...)
	d.Add(r.Wait...)
	return d
}

// fileOf is where a point's result is kept.
func (p *Plan) fileOf(dir string, at Point) string {
	return filepath.Join(dir, p.name(at)+","+at.Policy+","+p.key(at)+resultSuffix)
}

// save writes the file under another name first.
func (r *Result) save(path string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	put := func(l line) {
		if err := e.Encode(l); err != nil {
			panic(fmt.Sprintf("study: a result that is no JSON: %v", err))
		}
	}
	put(line{Run: &r.Header})
	put(line{Flows: &r.FlowTimes})
	for i := range r.Samples {
		put(line{Sample: &r.Samples[i]})
	}
	put(line{End: &r.End})
	err := os.WriteFile(path+partSuffix, b.Bytes(), 0o644)
	if err == nil {
		err = os.Rename(path+partSuffix, path)
	}
	if err != nil {
		return fmt.Errorf("study: results: %w", err)
	}
	return nil
}

// load reads a file that save has written; os.ErrNotExist where there is none.
func load(path string) (*Result, error) {
	wrong := func(format string, args ...any) (*Result, error) {
		return nil, fmt.Errorf("study: results: %s%w; remove it, and the run is made anew", path, fmt.Errorf(format, args...))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("study: results: %w", err)
	}
	defer f.Close()
	r := &Result{}
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 64<<10), maxResultLine)
	ended := false
	n := 0
	for lines.Scan() {
		n++
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return wrong(", line %d: %w", n, err)
		}
		switch {
		case ended || (n == 1) != (l.Run != nil):
			return wrong(", line %d: the run's description is the first line, its end the last", n)
		case l.Run != nil:
			if r.Header = *l.Run; r.Format != resultFormat {
				return wrong(" has format %d, and this program reads %d", r.Format, resultFormat)
			}
		case l.Flows != nil:
			r.FlowTimes = *l.Flows
		case l.Sample != nil:
			r.Samples = append(r.Samples, *l.Sample)
		case l.End != nil:
			r.End, ended = *l.End, true
		}
	}
	if err := lines.Err(); err != nil {
		return wrong(", line %d: %w", n+1, err)
	}
	if !ended || len(r.FCT) == 0 || len(r.FCT) != len(r.Wait) {
		return wrong(" is not complete")
	}
	return r, nil
}

// kept is a point's result from an earlier run; nil where there is none.
func (p *Plan) kept(dir string, at Point) (*Result, error) {
	if dir == "" {
		return nil, nil
	}
	r, err := load(p.fileOf(dir, at))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err == nil && r.Key != p.key(at) {
		err = fmt.Errorf("study: results: %s is of another run than its name says; remove it", p.fileOf(dir, at))
	}
	return r, err
}

// title is a point for people.
func (p *Plan) title(at Point) string {
	parts := []string{p.name(at), at.Policy}
	if v := p.Variants[at.Variant].Name; v != "" {
		parts = append(parts, p.Sweep+" "+v)
	}
	return strings.Join(parts, ", ")
}
