package study

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"shoal/internal/sim"
	"shoal/internal/sim/fabric"
)

// Replay starts the flows of a list at their times, on the paths that their source ports lead to, and returns how they
// ended, in that order. Nobody decides anything. seed is that of the switches' marks.
func Replay(ctx context.Context, s Scenario, w *sim.Workload, seed uint64) ([]fabric.Completion, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	t, err := s.Topology()
	if err != nil {
		return nil, err
	}
	if err := w.Fits(t.Hosts()); err != nil {
		return nil, err
	}
	net, err := s.net(t, seed)
	if err != nil {
		return nil, err
	}
	list := make([]fabric.Transfer, len(w.Flows))
	for i, f := range w.Flows {
		list[i] = fabric.Transfer{Src: f.Src, Dst: f.Dst, Port: f.Port, Bytes: f.Bytes, Start: sim.Of(f.At)}
	}
	type answer struct {
		done []fabric.Completion
		err  error
	}
	ended := make(chan answer, 1)
	go func() { // left alone where ctx ends: the program does then
		done, err := fabric.Replay(net, list)
		ended <- answer{done, err}
	}()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("study: replay: %w", ctx.Err())
	case a := <-ended:
		return a.done, a.err
	}
}

// completion is one line of a replay's JSON.
type completion struct {
	Src     int    `json:"src"`
	Dst     int    `json:"dst"`
	Port    uint16 `json:"sport"`
	DstPort int    `json:"dport"`
	Bytes   int64  `json:"bytes"`
	Start   int64  `json:"start_ns"`
	FCT     int64  `json:"fct_ns"`
}

func completions(done []fabric.Completion) []completion {
	out := make([]completion, len(done))
	for i, c := range done {
		out[i] = completion{c.Src, c.Dst, c.Port, fabric.DstPort, c.Bytes, c.Start.Duration().Nanoseconds(), c.FCT.Duration().Nanoseconds()}
	}
	return out
}

// WriteCompletions writes a line for each flow: FCT src dst sport dport bytes start_ns fct_ns.
func WriteCompletions(w io.Writer, done []fabric.Completion) error {
	b := bufio.NewWriter(w)
	for _, c := range completions(done) {
		fmt.Fprintln(b, "FCT", c.Src, c.Dst, c.Port, c.DstPort, c.Bytes, c.Start, c.FCT)
	}
	return b.Flush()
}

// WriteCompletionsJSON writes the same as an array.
func WriteCompletionsJSON(w io.Writer, done []fabric.Completion) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(completions(done))
}
