package load

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"
)

// TraceConfig says how a recorded trace is played. The format is that of the traces that Mooncake (FAST '25) published:
// JSON lines of {timestamp (ms), input_length, output_length (tokens), hash_ids}, a hash ID for every RecordedBlock
// tokens of the prompt, equal where the prefix is the same. The text itself was never published; here every hash ID has
// a text of its own, so that prompts share exactly the prefixes that the recorded ones did.
type TraceConfig struct {
	// Speed plays the trace this many times faster than it was recorded; 1 as it was. It does not matter where the run
	// has arrivals of its own (Config.Rate, Config.Clients).
	Speed float64
	// BlockTokens is how many tokens a hash ID stands for, 1 to RecordedBlock. Fewer shrink every prompt in proportion
	// and leave the sharing as it is, for engines with a short context or a slow prefill.
	BlockTokens int
	// Limit takes that many requests from the start; 0 takes all.
	Limit int
	// Seed decides the texts.
	Seed uint64
}

// DefaultTrace plays a trace as it was recorded.
func DefaultTrace() TraceConfig { return TraceConfig{Speed: 1, BlockTokens: RecordedBlock, Seed: 1} }

// Limits of a trace file.
const (
	RecordedBlock    = 512     // tokens that one hash ID stands for in the file
	MaxTraceLine     = 4 << 20 // bytes
	MaxTraceRequests = 1_000_000
	MaxTraceBlocks   = 8192 // of one request
	MaxTraceTime     = 31 * 24 * time.Hour
)

// Validate reports the first field that is out of its range.
func (c TraceConfig) Validate() error {
	switch {
	case math.IsNaN(c.Speed) || c.Speed < 1e-3 || c.Speed > 1e6:
		return fmt.Errorf("load: trace: a speed of %g; give 0.001 to 1000000", c.Speed)
	case c.BlockTokens < 1 || c.BlockTokens > RecordedBlock:
		return fmt.Errorf("load: trace: %d tokens a block; give 1 to %d", c.BlockTokens, RecordedBlock)
	case c.Limit < 0:
		return fmt.Errorf("load: trace: a limit of %d requests; give 0 (all) or more", c.Limit)
	}
	return nil
}

// Trace is a recorded workload. It is safe for concurrent use.
type Trace struct {
	cfg  TraceConfig
	name string
	rows []traceRow
}

type traceRow struct {
	at     time.Duration // as recorded
	input  int           // tokens, as recorded
	output int
	blocks []uint64
}

// OpenTrace reads a trace file.
func OpenTrace(path string, cfg TraceConfig) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load: trace: %w", err)
	}
	defer f.Close()
	return ReadTrace(f, filepath.Base(path), cfg)
}

// ReadTrace reads a trace; name stands for it in errors and reports. Errors name the line.
func ReadTrace(r io.Reader, name string, cfg TraceConfig) (*Trace, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	limit := MaxTraceRequests
	if cfg.Limit > 0 {
		limit = min(limit, cfg.Limit)
	}
	t := &Trace{cfg: cfg, name: name}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), MaxTraceLine)
	n := 0
	for len(t.rows) < limit && lines.Scan() {
		n++
		if len(lines.Bytes()) == 0 {
			continue
		}
		row, err := parseRow(lines.Bytes())
		if err == nil && len(t.rows) > 0 && row.at < t.rows[len(t.rows)-1].at {
			err = fmt.Errorf("timestamp %d is before that of the request above it; sort the file by timestamp", row.at.Milliseconds())
		}
		if err != nil {
			return nil, fmt.Errorf("load: trace %s, line %d: %w", name, n, err)
		}
		t.rows = append(t.rows, row)
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("longer than %d bytes; is it a trace of JSON lines?", MaxTraceLine)
		}
		return nil, fmt.Errorf("load: trace %s, line %d: %w", name, n+1, err)
	}
	if len(t.rows) == 0 {
		return nil, fmt.Errorf("load: trace %s has no requests", name)
	}
	return t, nil
}

func parseRow(line []byte) (traceRow, error) {
	var v struct {
		Timestamp *int64   `json:"timestamp"`
		Input     *int     `json:"input_length"`
		Output    *int     `json:"output_length"`
		Blocks    []uint64 `json:"hash_ids"`
	}
	if err := json.Unmarshal(line, &v); err != nil {
		return traceRow{}, fmt.Errorf("not a request in JSON: %w", err)
	}
	const maxInput = MaxTraceBlocks * RecordedBlock
	switch {
	case v.Timestamp == nil || *v.Timestamp < 0 || *v.Timestamp > MaxTraceTime.Milliseconds():
		return traceRow{}, fmt.Errorf("timestamp is missing or out of range: milliseconds since the start, at most %d", MaxTraceTime.Milliseconds())
	case v.Input == nil || *v.Input < 1 || *v.Input > maxInput:
		return traceRow{}, fmt.Errorf("input_length is missing or out of range: 1 to %d tokens", maxInput)
	case v.Output == nil || *v.Output < 0:
		return traceRow{}, errors.New("output_length is missing or negative: tokens of output")
	case len(v.Blocks) != (*v.Input+RecordedBlock-1)/RecordedBlock:
		return traceRow{}, fmt.Errorf("%d hash_ids for %d tokens of input; one for every %d tokens is due", len(v.Blocks), *v.Input, RecordedBlock)
	}
	return traceRow{at: time.Duration(*v.Timestamp) * time.Millisecond, input: *v.Input, output: *v.Output, blocks: v.Blocks}, nil
}

func (t *Trace) Describe() string {
	return fmt.Sprintf("trace %s: %d requests, %d tokens a block, speed %g", t.name, len(t.rows), t.cfg.BlockTokens, t.cfg.Speed)
}

func (t *Trace) Len() int    { return len(t.rows) }
func (t *Trace) Timed() bool { return true }

// Request writes the prompt of line i out of the texts of its blocks. The last block is as long as the recorded length
// says; rounding up leaves it at least one token, so that no two prompts become equal by shrinking.
func (t *Trace) Request(i int) Request {
	row := t.rows[i]
	left := (row.input*t.cfg.BlockTokens + RecordedBlock - 1) / RecordedBlock
	b := make([]byte, 0, left*6)
	for _, id := range row.blocks {
		n := min(left, t.cfg.BlockTokens)
		b = newProse(source(t.cfg.Seed, "block", id)).write(b, n)
		left -= n
	}
	return Request{
		At:     time.Duration(float64(row.at) / t.cfg.Speed),
		User:   string(b),
		Output: max(1, row.output),
	}
}
