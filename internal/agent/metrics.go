package agent

import (
	"cmp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// registry has everything that this agent can be measured by. Nothing is global: two agents in one process do not meet.
func (a *Agent) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(a.gateway)
	r.MustRegister(&nodeCollector{a})
	return r
}

// nodeCollector reads the node and the cluster when it is scraped: nothing is counted twice on the hot path.
type nodeCollector struct{ a *Agent }

// Describe sends nothing: the collector is unchecked, since its reasons and peers are not known beforehand.
func (c *nodeCollector) Describe(chan<- *prometheus.Desc) {}

func (c *nodeCollector) Collect(ch chan<- prometheus.Metric) {
	send := func(kind prometheus.ValueType, name, help string, v float64, labels ...string) {
		var names, values []string
		for i := 0; i < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, labels[i+1])
		}
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("shoal_"+name, help, names, nil), kind, v, values...)
	}
	c.a.mu.Lock()
	counters := c.a.countersLocked()
	replicas := c.a.node.ReplicaStats()
	c.a.mu.Unlock()
	for name, v := range counters {
		if reason, ok := strings.CutPrefix(name, "reason_"); ok {
			send(prometheus.CounterValue, "decisions_by_reason_total", "Routing decisions by reason.", float64(v), "reason", reason)
			continue
		}
		switch name {
		case "in_flight":
			send(prometheus.GaugeValue, "serving_in_flight", "Requests that the own engine serves now.", float64(v))
		case "dispatched":
			send(prometheus.GaugeValue, "dispatched_in_flight", "Requests at other peers now, sent by this one.", float64(v))
		case pathWaiting:
			send(prometheus.GaugeValue, name, "Own transfers that wait for their turn, or are announced.", float64(v))
		case pathWaits:
			send(prometheus.GaugeValue, name, "1 where policy shoal has transfers wait for their turn, 0 where least decides (GET /v1/paths/table says why).", float64(v))
		case pathWaited:
			send(prometheus.CounterValue, "path_waited_seconds_total", pathHelp(name), float64(v)/1e6)
		default:
			send(prometheus.CounterValue, name+"_total", cmp.Or(pathHelp(name), "See GET /status."), float64(v))
		}
	}
	send(prometheus.CounterValue, "replica_snapshots_total", "Complete copies of documents sent.", float64(replicas.Snapshots))
	send(prometheus.CounterValue, "replica_disagreed_total", "Documents with one stamp and two digests: should stay 0.", float64(replicas.Disagreed))
	c.peers(send)
	c.cluster(send)
}

func (c *nodeCollector) peers(send func(prometheus.ValueType, string, string, float64, ...string)) {
	now := c.a.now()
	for _, v := range c.a.views() {
		id := string(v.ID)
		up := 0.0
		if v.Alive && v.Load != nil && v.Load.Up {
			up = 1
		}
		send(prometheus.GaugeValue, "peer_up", "1 where the peer is alive and its engine answers.", up, "peer", id)
		send(prometheus.GaugeValue, "peer_blocks", "Text blocks that the peer holds, as known here.", float64(v.Blocks), "peer", id)
		if v.Heard >= 0 {
			send(prometheus.GaugeValue, "peer_staleness_seconds", "Since the peer's document was last known to be its latest.", (now - v.Heard).Seconds(), "peer", id)
		}
		send(prometheus.GaugeValue, "peer_rtt_seconds", "Round trip to the peer; 0 until measured.", v.RTT.Seconds(), "peer", id)
		send(prometheus.CounterValue, "peer_forwarded_total", "Requests sent to the peer.", float64(v.Forwarded), "peer", id)
		send(prometheus.CounterValue, "peer_declined_total", "Of them, declined.", float64(v.Declined), "peer", id)
		send(prometheus.CounterValue, "peer_failed_total", "Of them, failed before their first byte.", float64(v.Failed), "peer", id)
	}
}

func (c *nodeCollector) cluster(send func(prometheus.ValueType, string, string, float64, ...string)) {
	cl := c.a.cluster.Load()
	if cl == nil {
		return
	}
	s := cl.Stats()
	send(prometheus.GaugeValue, "cluster_members", "Live peers without this one.", float64(s.Members))
	send(prometheus.GaugeValue, "cluster_hops", "Hops now.", float64(s.HopsOut), "direction", "out")
	send(prometheus.GaugeValue, "cluster_hops", "Hops now.", float64(s.HopsIn), "direction", "in")
	send(prometheus.GaugeValue, "cluster_connections", "Connections open to the peer port.", float64(s.Conns))
	for _, x := range []struct {
		name, help string
		v          uint64
	}{
		{"cluster_dials_total", "Connections made to peers.", s.Dials}, {"cluster_dial_errors_total", "Of them, failed.", s.DialErrors},
		{"cluster_hops_opened_total", "Requests forwarded.", s.HopsOpened}, {"cluster_hops_served_total", "Forwarded requests served.", s.HopsServed},
		{"cluster_silent_total", "Hops that ended because the peer was silent.", s.Silent},
		{"cluster_cancels_total", "Served hops that the origin gave up.", s.Cancels},
		{"cluster_refused_total", "Connections and datagrams turned away.", s.Refused},
		{"cluster_rounds_total", "Anti-entropy rounds that ended well.", s.Rounds}, {"cluster_round_errors_total", "Those that did not.", s.RoundErrors},
		{"cluster_datagrams_in_total", "Datagrams received.", s.DatagramsIn}, {"cluster_datagrams_out_total", "Datagrams sent.", s.DatagramsOut},
	} {
		send(prometheus.CounterValue, x.name, x.help, float64(x.v))
	}
	send(prometheus.CounterValue, "cluster_round_bytes_total", "Bytes of anti-entropy rounds.", float64(s.RoundBytesIn), "direction", "in")
	send(prometheus.CounterValue, "cluster_round_bytes_total", "Bytes of anti-entropy rounds.", float64(s.RoundBytesOut), "direction", "out")
	send(prometheus.CounterValue, "cluster_round_seconds_total", "Time spent in rounds.", float64(s.RoundNanos)/1e9)
}
