package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"shoal/internal/term"
)

// cell is one kind of request: size of the prompt in bytes, and streaming or not.
type cell struct {
	size   int
	stream bool
}

func (c cell) String() string {
	kind := "plain"
	if c.stream {
		kind = "streamed"
	}
	return fmt.Sprintf("%g kB %s", float64(c.size)/1000, kind)
}

// measurement collects what the rounds show. Index of every slice: the round.
type measurement struct {
	opts   options
	s      *setup
	screen *term.Output
	text   string
	order  *rand.Rand
	seeds  uint64 // of crowds and prompts, so that no two send the same

	times  map[cell]*[ways][][]time.Duration
	loads  map[cell]*[ways][]total
	chunks [ways][]total // many chunks an answer, as fast as they come
	slow   [ways][]total // chunks that come one by one
}

const (
	warm       = 2 // requests of a fresh connection that are not counted
	burstBytes = 500
	pacedWait  = 4 // a paced measurement lasts this many times the load's time, since it is limited by the pace
)

func newMeasurement(opts options, s *setup, progress io.Writer) *measurement {
	return &measurement{opts: opts, s: s, screen: term.New(progress), order: rand.New(rand.NewPCG(opts.seed, 0)),
		seeds: opts.seed << 32, times: map[cell]*[ways][][]time.Duration{}, loads: map[cell]*[ways][]total{}}
}

// pool is the text that prompts are cut from, made when it is first needed.
func (m *measurement) pool() (string, error) {
	var err error
	if m.text == "" {
		m.text, err = newPool(m.opts.seed)
	}
	return m.text, err
}

func (m *measurement) shuffled() []way {
	all := []way{direct, floor, agent, hop}
	m.order.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func (m *measurement) seed() uint64 {
	m.seeds++
	return m.seeds
}

// latency measures one request at a time, the ways in blocks that follow each other closely.
func (m *measurement) latency(ctx context.Context, round, size int, stream bool) error {
	c := cell{size, stream}
	text, err := m.pool()
	if err != nil {
		return err
	}
	if m.times[c] == nil {
		m.times[c] = new([ways][][]time.Duration)
	}
	var samples [ways][]time.Duration
	for range m.opts.blocks {
		for _, to := range m.shuffled() {
			m.screen.Progress(fmt.Sprintf("round %d of %d: latency, %s, %s", round+1, m.opts.rounds, c, wayNames[to]))
			p := &prompts{model: m.s.model, text: text, random: rand.New(rand.NewPCG(m.seed(), 0)), unique: m.seeds << 32}
			k, err := dial(m.s.entry[to], m.s.serves[to])
			if err != nil {
				return fmt.Errorf("%s: %w", wayNames[to], err)
			}
			for i := range warm + m.opts.perBlock {
				a, err := k.ask(p, size, stream, m.opts.maxTokens)
				if err == nil {
					err = ctx.Err()
				}
				if err != nil {
					k.close()
					return fmt.Errorf("%s, %s: %w\n%s", wayNames[to], c, err, m.s.said())
				}
				if i >= warm {
					samples[to] = append(samples[to], a.ttft)
				}
			}
			k.close()
		}
	}
	m.screen.Progress("")
	for to := range ways {
		slices.Sort(samples[to])
		m.times[c][to] = append(m.times[c][to], samples[to])
	}
	return nil
}

// throughput measures a closed loop on each way in turn.
func (m *measurement) throughput(ctx context.Context, round, size int, stream bool) error {
	c := cell{size, stream}
	if m.loads[c] == nil {
		m.loads[c] = new([ways][]total)
	}
	w := crowd{clients: m.opts.clients, size: size, stream: stream, maxTokens: m.opts.maxTokens, during: m.opts.load}
	return m.crowds(ctx, m.s, w, m.loads[c], fmt.Sprintf("round %d of %d: closed loop, %s", round+1, m.opts.rounds, c))
}

// bursts measures answers of many chunks that come as fast as the engine makes them.
func (m *measurement) bursts(ctx context.Context, round int) error {
	w := crowd{clients: m.opts.clients, size: burstBytes, stream: true, maxTokens: m.opts.burst, during: m.opts.load}
	return m.crowds(ctx, m.s, w, &m.chunks, fmt.Sprintf("round %d of %d: bursts of chunks", round+1, m.opts.rounds))
}

// pacedChunks measures answers whose chunks come one by one, as those of an engine do.
func (m *measurement) pacedChunks(ctx context.Context, round int) error {
	if m.s.paced == nil {
		return nil
	}
	w := crowd{clients: m.opts.paced, size: burstBytes, stream: true, maxTokens: m.opts.pacedTokens, during: pacedWait * m.opts.load}
	return m.crowds(ctx, m.s.paced, w, &m.slow, fmt.Sprintf("round %d of %d: paced chunks", round+1, m.opts.rounds))
}

func (m *measurement) crowds(ctx context.Context, s *setup, w crowd, into *[ways][]total, what string) error {
	text, err := m.pool()
	if err != nil {
		return err
	}
	for _, to := range m.shuffled() {
		m.screen.Progress(what + ", " + wayNames[to])
		t, err := w.run(ctx, s, to, text, m.seed())
		if err != nil {
			return fmt.Errorf("%w\n%s", err, s.said())
		}
		into[to] = append(into[to], t)
	}
	m.screen.Progress("")
	return nil
}

// added is what a way adds to a percentile of the direct way, in microseconds: the median over the rounds.
func (m *measurement) added(to way, c cell, percent int) float64 {
	var d []float64
	for round := range m.times[c][to] {
		d = append(d, micros(percentile(m.times[c][to][round], percent)-percentile(m.times[c][direct][round], percent)))
	}
	return median(d)
}

// level is a percentile of one way, in microseconds: the median over the rounds.
func (m *measurement) level(to way, c cell, percent int) float64 {
	var d []float64
	for _, samples := range m.times[c][to] {
		d = append(d, micros(percentile(samples, percent)))
	}
	return median(d)
}

// cpu is the CPU time of a way's own processes for one request, in microseconds.
func (m *measurement) cpu(to way, c cell) float64 {
	return over(m.loads[c][to], func(t total) float64 { return micros(t.cpu) / float64(max(1, t.requests)) })
}

func (m *measurement) rate(to way, c cell) float64 {
	return over(m.loads[c][to], func(t total) float64 { return float64(t.requests) / t.took.Seconds() })
}

func cpuPerChunk(rounds []total) float64 {
	return over(rounds, func(t total) float64 { return micros(t.cpu) / float64(max(1, t.chunks)) })
}

func chunkRate(rounds []total) float64 {
	return over(rounds, func(t total) float64 { return float64(t.chunks) / t.took.Seconds() })
}

func over(rounds []total, f func(total) float64) float64 {
	var d []float64
	for _, t := range rounds {
		d = append(d, f(t))
	}
	return median(d)
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// percentile is the nearest rank in sorted samples; 0 without any.
func percentile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

// median leaves its argument sorted; 0 without values. Of an even number it is the lower one in the middle.
func median(d []float64) float64 {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[(len(d)-1)/2]
}

// write prints the tables in Markdown.
func (m *measurement) write(w io.Writer) {
	var cells []cell
	for _, size := range m.opts.sizes {
		cells = append(cells, cell{size, false}, cell{size, true})
	}
	fmt.Fprintf(w, "One request at a time: p50 and p99 of the direct way, and what the others add to them, in us. Streamed: until the first content.\n\n")
	t := term.NewTable(term.Left("prompt"), term.Right("direct p50"), term.Right("p99"), term.Right("ReverseProxy +p50"), term.Right("+p99"),
		term.Right("one agent +p50"), term.Right("+p99"), term.Right("one hop +p50"), term.Right("+p99"))
	for _, c := range cells {
		row := []string{c.String(), us(m.level(direct, c, 50)), us(m.level(direct, c, 99))}
		for _, to := range []way{floor, agent, hop} {
			row = append(row, us(m.added(to, c, 50)), us(m.added(to, c, 99)))
		}
		t.Row(row...)
	}
	fmt.Fprintf(w, "%s\nClosed loop of %d clients, answers of %d tokens: requests a second, and CPU time of the way's own processes for each request in us.\n\n",
		t.Markdown(), m.opts.clients, m.opts.maxTokens)
	t = term.NewTable(term.Left("prompt"), term.Right("direct /s"), term.Right("ReverseProxy /s"), term.Right("CPU us"),
		term.Right("one agent /s"), term.Right("CPU us"), term.Right("one hop /s"), term.Right("CPU us"))
	for _, c := range cells {
		row := []string{c.String(), us(m.rate(direct, c))}
		for _, to := range []way{floor, agent, hop} {
			row = append(row, us(m.rate(to, c)), us(m.cpu(to, c)))
		}
		t.Row(row...)
	}
	fmt.Fprintf(w, "%s\nStream chunks: answers of %d tokens from %d clients as fast as the engine makes them, and of %d tokens from %d clients, %v apart.\n\n",
		t.Markdown(), m.opts.burst, m.opts.clients, m.opts.pacedTokens, m.opts.paced, m.opts.pace)
	t = term.NewTable(term.Left("way"), term.Right("burst chunks/s"), term.Right("CPU us a chunk"), term.Right("paced chunks/s"), term.Right("CPU us a chunk"))
	for to := range ways {
		row := []string{wayNames[to], us(chunkRate(m.chunks[to])), "-", us(chunkRate(m.slow[to])), "-"}
		if to != direct {
			row[2], row[4] = fmt.Sprintf("%.2f", cpuPerChunk(m.chunks[to])), fmt.Sprintf("%.2f", cpuPerChunk(m.slow[to]))
		}
		t.Row(row...)
	}
	fmt.Fprint(w, t.Markdown())
}

func us(v float64) string { return fmt.Sprintf("%.0f", v) }
