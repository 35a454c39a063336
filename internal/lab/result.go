package lab

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"shoal/internal/sim"
)

// A run's file is JSON lines, each an object with one of four members: run (the first), flow, sample, end (the last). While
// the run goes on, the file has another name; a file of the final name is complete.
type line struct {
	Run    *Header     `json:"run,omitempty"`
	Flow   *FlowResult `json:"flow,omitempty"`
	Sample *Sample     `json:"sample,omitempty"`
	End    *End        `json:"end,omitempty"`
}

// Header says what a run was.
type Header struct {
	Format   int       `json:"format"`
	Workload string    `json:"workload"`
	Title    string    `json:"title"`
	Digest   string    `json:"digest"` // of the flows
	QPS      float64   `json:"qps,omitempty"`
	Seed     uint64    `json:"seed,omitempty"`
	Policy   string    `json:"policy"`
	Flows    int       `json:"flows"`
	Fabric   string    `json:"fabric"` // digest of its description
	Spines   []string  `json:"spines"`
	Uplinks  []string  `json:"uplinks"`
	SampleMs int64     `json:"sample_ms"`
	Started  time.Time `json:"started"`
	// AnnouncedUs is how long before its bytes were there the policy knew of a flow, and Setup what the lab was. Older files
	// have neither.
	AnnouncedUs *int64 `json:"announced_us,omitempty"`
	Setup       *Setup `json:"setup,omitempty"`
}

// Setup is what decides a run's result besides its workload and policy, in numbers that a simulator needs.
type Setup struct {
	Pods         int   `json:"pods"`
	Leaves       int   `json:"leaves"` // of a pod
	HostsPerLeaf int   `json:"hosts_per_leaf"`
	Spines       int   `json:"spines"` // of a pod
	Cores        int   `json:"cores"`
	Rate         int64 `json:"rate"`     // of every link, in bit/s
	Chunk        int   `json:"chunk"`    // bytes between two looks of a transfer at its path
	DelayUs      int64 `json:"delay_us"` // for which messages about reservations are held back
}

// Setup is that of such a fabric with agents of these settings.
func (c Config) Setup(chunk int, delay time.Duration) *Setup {
	return &Setup{c.Pods, c.Leaves, c.HostsPerLeaf, c.Spines, c.Cores, c.Rate, chunk, delay.Microseconds()}
}

// differs names what is not the same in a kept run as in one that would be made now; empty: nothing that is known of both.
func (h *Header) differs(now *Header) string {
	switch {
	case h.Digest != now.Digest:
		return "another workload"
	case h.Fabric != now.Fabric:
		return "another fabric"
	case h.AnnouncedUs != nil && *h.AnnouncedUs != *now.AnnouncedUs:
		return fmt.Sprintf("flows that were announced %v ahead, not %v", time.Duration(*h.AnnouncedUs)*time.Microsecond, time.Duration(*now.AnnouncedUs)*time.Microsecond)
	case h.Setup != nil && now.Setup != nil && *h.Setup != *now.Setup:
		return fmt.Sprintf("another setup (%+v, not %+v)", *h.Setup, *now.Setup)
	}
	return ""
}

// FlowResult is one flow.
type FlowResult struct {
	ID       int    `json:"id"`
	Src      int    `json:"src"`
	Dst      int    `json:"dst"`
	Bytes    int64  `json:"bytes"`
	AtUs     int64  `json:"at_us"`
	FCTUs    int64  `json:"fct_us"` // from its arrival to the receiver's confirmation; of a failed flow, to the failure
	Port     uint16 `json:"port,omitempty"`
	Paths    []int  `json:"paths,omitempty"` // the last that it had
	Fallback bool   `json:"fallback,omitempty"`
	Moves    int    `json:"moves,omitempty"`
	Error    string `json:"error,omitempty"`
}

// Sample is what happened since the sample before.
type Sample struct {
	AtMs     int64   `json:"at_ms"` // since the run's start
	Bytes    []int64 `json:"bytes"` // by uplink, as in the header
	Flows    []int   `json:"flows"` // under way at this moment, by spine
	Unplaced int     `json:"unplaced,omitempty"`
}

// End closes a run.
type End struct {
	Seconds float64 `json:"seconds"`
	Failed  int     `json:"failed"`
	LateMs  int64   `json:"late_ms"` // how late the latest flow began: what the machine, not the network, has added
	Counts  Counts  `json:"counts"`
	Links   []Count `json:"links"` // what each link carried
}

// Result is one run as its file tells it.
type Result struct {
	Header
	FlowResults []FlowResult
	Samples     []Sample
	End         End
}

const (
	resultFormat  = 1
	resultSuffix  = ".jsonl"
	partSuffix    = ".part"
	maxResultLine = 1 << 20
	// MaxResults bounds the runs that one report takes.
	MaxResults = MaxPolicies * MaxWorkloads
	maxSamples = 1_000_000
)

// A name may have dots, and a comma never: it parts them.
func fileName(workload, policy string) string { return workload + "," + policy + resultSuffix }

// recorder writes a run's file. It is safe for concurrent use; the first error stays.
type recorder struct {
	mu   sync.Mutex
	path string
	f    *os.File
	w    *bufio.Writer
	json *json.Encoder
	err  error
}

func newRecorder(path string) (*recorder, error) {
	f, err := os.Create(path + partSuffix)
	if err != nil {
		return nil, fmt.Errorf("lab: results: %w", err)
	}
	r := &recorder{path: path, f: f, w: bufio.NewWriter(f)}
	r.json = json.NewEncoder(r.w)
	r.json.SetEscapeHTML(false) // the names of links have an arrow in them
	return r, nil
}

func (r *recorder) put(l line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.json.Encode(l); r.err == nil {
		r.err = err
	}
}

// finish gives the file its final name.
func (r *recorder) finish() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := errors.Join(r.err, r.w.Flush(), r.f.Close())
	if err == nil {
		err = os.Rename(r.path+partSuffix, r.path)
	}
	if err != nil {
		return fmt.Errorf("lab: results: %w", err)
	}
	r.f = nil
	return nil
}

// abandon removes what is not finished.
func (r *recorder) abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.f != nil {
		r.f.Close()
		os.Remove(r.path + partSuffix)
		r.f = nil
	}
}

// readHeader reads the first line of a run's file.
func readHeader(path string) (*Header, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lab: results: %w", err)
	}
	defer f.Close()
	b, err := bufio.NewReaderSize(io.LimitReader(f, maxResultLine), 4096).ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("lab: results: %s has no first line", path)
	}
	var l line
	if err := json.Unmarshal(b, &l); err != nil || l.Run == nil || l.Run.Format != resultFormat {
		return nil, fmt.Errorf("lab: results: %s does not begin as a run's file of format %d does", path, resultFormat)
	}
	return l.Run, nil
}

// ReadResults reads the files of all runs in a directory, in order of rate, workload and policy.
func ReadResults(dir string) ([]*Result, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"+resultSuffix))
	if err != nil {
		return nil, fmt.Errorf("lab: results: %w", err)
	}
	switch {
	case len(names) == 0:
		return nil, fmt.Errorf("lab: results: no run has ended in %s", dir)
	case len(names) > MaxResults:
		return nil, fmt.Errorf("lab: results: %d runs in %s; at most %d are read", len(names), dir, MaxResults)
	}
	var all []*Result
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("lab: results: %w", err)
		}
		r, err := parseResult(b)
		if err != nil {
			return nil, fmt.Errorf("lab: results: %s, %w", name, err)
		}
		all = append(all, r)
	}
	sort.SliceStable(all, func(i, j int) bool {
		a, b := all[i], all[j]
		if a.QPS != b.QPS {
			return a.QPS < b.QPS
		}
		if a.Workload != b.Workload {
			return a.Workload < b.Workload
		}
		return a.Policy < b.Policy
	})
	return all, nil
}

func parseResult(b []byte) (*Result, error) {
	r := &Result{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(make([]byte, 4096), maxResultLine)
	ended := false
	n := 0
	for lines.Scan() {
		n++
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		switch {
		case ended:
			return nil, fmt.Errorf("line %d: after the end", n)
		case (n == 1) != (l.Run != nil):
			return nil, fmt.Errorf("line %d: the run's description is the first line, and no other", n)
		case l.Run != nil:
			if r.Header = *l.Run; r.Format != resultFormat {
				return nil, fmt.Errorf("line %d: format %d; this program reads %d", n, r.Format, resultFormat)
			}
		case l.Flow != nil:
			r.FlowResults = append(r.FlowResults, *l.Flow)
		case l.Sample != nil:
			if len(l.Sample.Bytes) != len(r.Uplinks) || len(l.Sample.Flows) != len(r.Spines) {
				return nil, fmt.Errorf("line %d: a sample of %d uplinks and %d spines in a run with %d and %d", n, len(l.Sample.Bytes), len(l.Sample.Flows), len(r.Uplinks), len(r.Spines))
			}
			r.Samples = append(r.Samples, *l.Sample)
		case l.End != nil:
			r.End, ended = *l.End, true
		default:
			return nil, fmt.Errorf("line %d: neither run, flow, sample nor end", n)
		}
		if len(r.FlowResults) > sim.MaxFlows || len(r.Samples) > maxSamples {
			return nil, fmt.Errorf("line %d: more than %d flows or %d samples", n, sim.MaxFlows, maxSamples)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	}
	if !ended {
		return nil, errors.New("the last line is not the end of a run")
	}
	return r, nil
}

// spineOf is the index of the spine that an uplink leads to; -1 where there is none.
func (r *Result) spineOf(uplink int) int {
	_, to, _ := strings.Cut(r.Uplinks[uplink], "->")
	for k, s := range r.Spines {
		if s == to {
			return k
		}
	}
	return -1
}
