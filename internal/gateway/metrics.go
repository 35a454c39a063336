package gateway

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics is what the gateway counts. Labels come from small fixed sets, except code, which engines choose within 100 to
// 999.
type metrics struct {
	requests *prometheus.CounterVec // path, code, reason
	retries  *prometheus.CounterVec // cause
	broken   *prometheus.CounterVec // cause
	hops     *prometheus.CounterVec // direction, outcome
	aborted  prometheus.Counter
	ttft     *prometheus.HistogramVec // path
	inFlight atomic.Int64
	flying   prometheus.GaugeFunc
}

func newMetrics() *metrics {
	const ns, sub = "shoal", "gateway"
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Subsystem: sub, Name: name, Help: help}, labels)
	}
	m := &metrics{
		requests: counter("requests_total", "Requests of clients that have ended, by API path, status sent, and the decision's reason.", "path", "code", "reason"),
		retries:  counter("retries_total", "Attempts that came to nothing before the first byte and were followed by another one, by cause.", "cause"),
		broken:   counter("broken_answers_total", "Answers that had begun and could not be completed: streams ended by an error event, others cut, by cause.", "cause"),
		hops:     counter("hops_total", "Forwarded requests that have ended: out, to other peers; in, served for other peers.", "direction", "outcome"),
		aborted: prometheus.NewCounter(prometheus.CounterOpts{Namespace: ns, Subsystem: sub, Name: "aborted_total",
			Help: "Requests whose client went away before the end of the answer."}),
		ttft: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: ns, Subsystem: sub, Name: "ttft_seconds",
			Help:    "Time from the request's arrival to the first byte of an event stream's body.",
			Buckets: []float64{.002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 60, 120, 300}}, []string{"path"}),
	}
	m.flying = prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: ns, Subsystem: sub, Name: "in_flight",
		Help: "Requests of clients being served now."}, func() float64 { return float64(m.inFlight.Load()) })
	return m
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.retries, m.broken, m.hops, m.aborted, m.ttft, m.flying}
}

// Describe and Collect make the gateway a prometheus.Collector.
func (g *Gateway) Describe(to chan<- *prometheus.Desc) {
	for _, c := range g.metrics.all() {
		c.Describe(to)
	}
}

// Collect gives the current values.
func (g *Gateway) Collect(to chan<- prometheus.Metric) {
	for _, c := range g.metrics.all() {
		c.Collect(to)
	}
}

// ended counts a request at its end.
func (m *metrics) ended(path string, status int, reason string) {
	m.requests.WithLabelValues(path, strconv.Itoa(status), reason).Inc()
}

func (m *metrics) first(path string, after time.Duration) {
	m.ttft.WithLabelValues(path).Observe(after.Seconds())
}
