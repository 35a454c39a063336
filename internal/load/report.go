package load

import (
	"encoding/json"
	"io"
	"sort"
	"strconv"
	"time"

	"shoal/internal/peer"
)

// Report is what a run has shown. Its JSON is the output of `shoal bench --output json`; a null is something that nobody
// reported. Times are in milliseconds. Failed and unfinished requests are in no time, rate or share.
type Report struct {
	Name     string   `json:"name,omitempty"`
	Workload string   `json:"workload"`
	Digest   string   `json:"digest"` // of the workload's first requests: equal seeds and parameters give equal digests
	Seed     uint64   `json:"seed"`   // of the run
	Targets  []string `json:"targets"`
	Model    string   `json:"model"`
	Stream   bool     `json:"stream"`
	Arrivals string   `json:"arrivals"`

	Ended      Ended   `json:"ended"`
	Planned    int     `json:"planned"`
	Sent       int     `json:"sent"`
	OK         int     `json:"ok"`
	Failed     int     `json:"failed"`
	Unfinished int     `json:"unfinished"`
	Seconds    float64 `json:"seconds"`
	PerSecond  float64 `json:"requests_per_second"` // complete answers

	// HitRate is Cached / Prompt, by the engines' own counts over the Counted requests that had both.
	HitRate *float64 `json:"hit_rate"`
	Counted int      `json:"counted"`
	Prompt  int64    `json:"prompt_tokens"`
	Cached  int64    `json:"cached_tokens"`
	// Predicted is what X-Shoal-Matched-Tokens promised over those Counted requests that carried it, and Found what the
	// engines then had: belief beside truth. Null without such headers.
	Predicted *int64 `json:"predicted_tokens"`
	Found     *int64 `json:"found_tokens"`
	Output    int64  `json:"completion_tokens"`

	TTFT  Quantiles `json:"ttft_ms"`
	TPOT  Quantiles `json:"tpot_ms"`
	Total Quantiles `json:"total_ms"`

	Peers        []Share      `json:"peers"` // the most used first
	LargestShare float64      `json:"largest_share"`
	Reasons      []Count      `json:"reasons"`
	Errors       []ErrorCount `json:"errors"`
}

// Quantiles of one time, in milliseconds, by the nearest rank; null over nothing.
type Quantiles struct {
	Count int      `json:"count"`
	Mean  *float64 `json:"mean"`
	P50   *float64 `json:"p50"`
	P95   *float64 `json:"p95"`
	P99   *float64 `json:"p99"`
}

// Share is what one peer served.
type Share struct {
	Peer     string   `json:"peer"`
	Requests int      `json:"requests"`
	Share    float64  `json:"share"`
	HitRate  *float64 `json:"hit_rate"`
}

// Count is how often a word came.
type Count struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// ErrorCount is one kind of failure, by whether the client had seen a byte of an answer.
type ErrorCount struct {
	Kind            string `json:"kind"`
	BeforeFirstByte int    `json:"before_first_byte"`
	AfterFirstByte  int    `json:"after_first_byte"`
	Example         string `json:"example"`
}

func (r *run) report() *Report {
	p := &Report{
		Name: r.cfg.Name, Workload: r.cfg.Workload.Describe(), Digest: r.digest, Seed: r.cfg.Seed, Model: r.client.model,
		Stream: r.cfg.Stream, Arrivals: r.cfg.describeArrivals(), Ended: r.ended, Planned: r.planned, Sent: r.state.Sent,
		Seconds: round(r.elapsed.Seconds()),
	}
	for _, t := range r.client.targets {
		p.Targets = append(p.Targets, t.String())
	}
	p.summarise(r.results, r.elapsed)
	return p
}

// tally adds up the engines' counts.
type tally struct{ requests, prompt, cached int64 }

func (t *tally) rate() *float64 {
	if t.prompt == 0 {
		return nil
	}
	v := round(float64(t.cached) / float64(t.prompt))
	return &v
}

func (p *Report) summarise(results []Result, elapsed time.Duration) {
	var ttft, tpot, total []time.Duration
	var all tally
	byPeer, reasons, errs := map[string]*tally{}, map[string]int{}, map[string]*ErrorCount{}
	var predicted, found int64
	predictions := 0
	for i := range results {
		r := &results[i]
		switch r.Kind {
		case OK:
		case Unfinished:
			p.Unfinished++
			continue
		default:
			p.Failed++
			countError(errs, r)
			continue
		}
		p.OK++
		total = append(total, r.Total)
		if r.TTFT > 0 {
			ttft = append(ttft, r.TTFT)
		}
		if r.TPOT > 0 {
			tpot = append(tpot, r.TPOT)
		}
		if r.Output != peer.Unknown {
			p.Output += r.Output
		}
		if r.Reason != "" {
			reasons[r.Reason]++
		}
		t := byPeer[r.Peer]
		if t == nil {
			t = new(tally)
			byPeer[r.Peer] = t
		}
		t.requests++
		if r.counted() {
			p.Counted++
			all.prompt, all.cached = all.prompt+r.Prompt, all.cached+r.Cached
			t.prompt, t.cached = t.prompt+r.Prompt, t.cached+r.Cached
			if r.Matched != peer.Unknown {
				predictions++
				predicted, found = predicted+r.Matched, found+r.Cached
			}
		}
	}
	p.HitRate, p.Prompt, p.Cached = all.rate(), all.prompt, all.cached
	if predictions > 0 {
		p.Predicted, p.Found = &predicted, &found
	}
	p.TTFT, p.TPOT, p.Total = quantiles(ttft), quantiles(tpot), quantiles(total)
	if s := elapsed.Seconds(); s > 0 {
		p.PerSecond = round(float64(p.OK) / s)
	}
	p.Peers = shares(byPeer, p.OK)
	if len(p.Peers) > 0 {
		p.LargestShare = p.Peers[0].Share
	}
	p.Reasons = counts(reasons)
	p.Errors = errorCounts(errs)
}

func countError(errs map[string]*ErrorCount, r *Result) {
	kind := string(r.Kind)
	if r.Kind == Status {
		kind = "status-" + strconv.Itoa(r.Status)
	}
	e := errs[kind]
	if e == nil {
		e = &ErrorCount{Kind: kind, Example: r.Detail}
		errs[kind] = e
	}
	if r.FirstByte {
		e.AfterFirstByte++
	} else {
		e.BeforeFirstByte++
	}
}

func shares(byPeer map[string]*tally, ok int) []Share {
	out := make([]Share, 0, len(byPeer))
	for name, t := range byPeer {
		out = append(out, Share{Peer: name, Requests: int(t.requests), Share: round(float64(t.requests) / float64(ok)), HitRate: t.rate()})
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Requests != out[j].Requests {
			return out[i].Requests > out[j].Requests
		}
		return out[i].Peer < out[j].Peer
	})
	return out
}

func counts(m map[string]int) []Count {
	out := make([]Count, 0, len(m))
	for name, n := range m {
		out = append(out, Count{name, n})
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Count != out[j].Count {
			return out[i].Count > out[j].Count
		}
		return out[i].Name < out[j].Name
	})
	return out
}

func errorCounts(m map[string]*ErrorCount) []ErrorCount {
	out := make([]ErrorCount, 0, len(m))
	for _, e := range m {
		out = append(out, *e)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Kind < out[j].Kind })
	return out
}

func quantiles(d []time.Duration) Quantiles {
	q := Quantiles{Count: len(d)}
	if len(d) == 0 {
		return q
	}
	sort.Slice(d, func(i, j int) bool { return d[i] < d[j] })
	var sum time.Duration
	for _, x := range d {
		sum += x
	}
	q.Mean = milliseconds(sum / time.Duration(len(d)))
	q.P50, q.P95, q.P99 = milliseconds(rank(d, 50)), milliseconds(rank(d, 95)), milliseconds(rank(d, 99))
	return q
}

// rank is the nearest-rank percentile of sorted, non-empty d: the least value that percent of all do not exceed.
func rank(d []time.Duration, percent int) time.Duration {
	return d[max(0, (len(d)*percent+99)/100-1)]
}

func milliseconds(d time.Duration) *float64 {
	v := round(float64(d) / float64(time.Millisecond))
	return &v
}

// round keeps four digits after the point: more is noise, and a report is read by people too.
func round(v float64) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'f', 4, 64), 64)
	if err != nil {
		return v
	}
	return r
}

// WriteJSON writes the report as one indented JSON object.
func (p *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(p)
}
