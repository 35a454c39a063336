package sim

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/zeebo/xxh3"
)

// A workload's file is text: lines that start with # are remarks, the first of them the title, and one
// `qps N seed N` where that is known; every other line is a flow,
// `src dst sport bytes start_ns`, in order of arrival. The same files drive packet simulators.

// Write writes w as text.
func (w *Workload) Write(out io.Writer) error {
	b := bufio.NewWriter(out)
	if w.Title != "" {
		fmt.Fprintf(b, "# %s\n", strings.ReplaceAll(w.Title, "\n", " "))
	}
	if w.QPS > 0 {
		fmt.Fprintf(b, "# qps %g seed %d\n", w.QPS, w.Seed)
	}
	fmt.Fprintln(b, "# src dst sport bytes start_ns; sport 0: the policy decides")
	for _, f := range w.Flows {
		fmt.Fprintln(b, f.Src, f.Dst, f.Port, f.Bytes, f.At.Nanoseconds())
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("sim: workload: %w", err)
	}
	return nil
}

// Save writes w into a file.
func (w *Workload) Save(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("sim: workload: %w", err)
	}
	defer f.Close()
	if err := w.Write(f); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("sim: workload: %w", err)
	}
	return nil
}

// LoadWorkload reads a workload's file.
func LoadWorkload(path string) (*Workload, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("sim: workload: %w", err)
	}
	defer f.Close()
	return ReadWorkload(f, filepath.Base(path))
}

// ReadWorkload reads a workload; name stands for it in errors, which name the line.
func ReadWorkload(r io.Reader, name string) (*Workload, error) {
	w := &Workload{Name: strings.TrimSuffix(name, filepath.Ext(name))}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 1024), MaxFlowLine)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if remark, ok := strings.CutPrefix(line, "#"); ok {
			if len(w.Flows) == 0 {
				w.remark(strings.TrimSpace(remark))
			}
			continue
		}
		if line == "" {
			continue
		}
		f, err := parseFlow(line)
		if err == nil && len(w.Flows) > 0 && f.At < w.Flows[len(w.Flows)-1].At {
			err = fmt.Errorf("start %d is before that of the flow above it; sort the file by start", f.At.Nanoseconds())
		}
		if err == nil && len(w.Flows) == MaxFlows {
			err = fmt.Errorf("more than %d flows", MaxFlows)
		}
		if err != nil {
			return nil, fmt.Errorf("sim: workload %s, line %d: %w", name, n, err)
		}
		f.ID = len(w.Flows)
		w.Flows = append(w.Flows, f)
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("a line is longer than %d bytes; is it a list of flows?", MaxFlowLine)
		}
		return nil, fmt.Errorf("sim: workload %s: %w", name, err)
	}
	if len(w.Flows) == 0 {
		return nil, fmt.Errorf("sim: workload %s has no flows", name)
	}
	return w, nil
}

// remark takes the first for the title, and the rate and seed from where they stand.
func (w *Workload) remark(text string) {
	var qps float64
	var seed uint64
	if n, err := fmt.Sscanf(text, "qps %g seed %d", &qps, &seed); n == 2 && err == nil && qps > 0 && qps <= MaxQPS {
		w.QPS, w.Seed = qps, seed
	} else if w.Title == "" {
		w.Title = text
	}
}

func parseFlow(line string) (Flow, error) {
	words := strings.Fields(line)
	if len(words) != 5 {
		return Flow{}, fmt.Errorf("%d words; 5 are due: src dst sport bytes start_ns", len(words))
	}
	var v [5]int64
	for i, limit := range [5]struct {
		name      string
		low, high int64
	}{{"src", 0, maxFlowHosts - 1}, {"dst", 0, maxFlowHosts - 1}, {"sport", 0, 65535}, {"bytes", 1, MaxFlowBytes}, {"start_ns", 0, int64(MaxFlowTime)}} {
		n, err := strconv.ParseInt(words[i], 10, 64)
		if err != nil || n < limit.low || n > limit.high {
			return Flow{}, fmt.Errorf("%s is %.30q; give a whole number from %d to %d", limit.name, words[i], limit.low, limit.high)
		}
		v[i] = n
	}
	if v[0] == v[1] {
		return Flow{}, fmt.Errorf("src and dst are both %d", v[0])
	}
	return Flow{Src: int(v[0]), Dst: int(v[1]), Port: uint16(v[2]), Bytes: v[3], At: time.Duration(v[4])}, nil
}

// Digest identifies the flows: equal configurations give equal digests, on every machine.
func (w *Workload) Digest() string {
	h := xxh3.New()
	for _, f := range w.Flows {
		fmt.Fprintln(h, f.Src, f.Dst, f.Port, f.Bytes, f.At.Nanoseconds())
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// Fits reports whether the flows run on a fabric with so many hosts.
func (w *Workload) Fits(hosts int) error {
	for _, f := range w.Flows {
		if max(f.Src, f.Dst) >= hosts {
			return fmt.Errorf("sim: workload: flow %d goes from host %d to host %d, and the fabric has hosts 0 to %d", f.ID, f.Src, f.Dst, hosts-1)
		}
	}
	return nil
}
