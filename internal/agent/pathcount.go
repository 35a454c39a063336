package agent

import (
	"time"

	"shoal/internal/reserve"
)

// Those that go up and down.
const (
	pathWaiting = "path_waiting" // own transfers in the schedule of policy shoal
	pathWaits   = "path_waits"   // 1: the schedule is kept, 0: least decides for it
)

// tableCounters names the counters of a table.
func tableCounters(t *reserve.Table, now time.Duration) map[string]int64 {
	s, x := t.Stats(), t.Schedule(now)
	waits := int64(0)
	if x.Mode == reserve.Waiting {
		waits = 1
	}
	return map[string]int64{
		"path_reserved": int64(s.Reserved), "path_released": int64(s.Released), "path_conflicts": int64(s.Conflicts), "path_moves": int64(s.Moves),
		"path_moves_refused": int64(s.MovesRefused), "path_lapsed": int64(s.Lapsed), "path_expired": int64(s.Expired), "path_forgotten": int64(s.Forgotten),
		"path_flows_unreserved": int64(s.Fallbacks), "path_heard": int64(s.Verdicts[reserve.Accepted]), "path_heard_twice": int64(s.Verdicts[reserve.Duplicate]),
		"path_old": int64(s.Verdicts[reserve.Old]), "path_not_owner": int64(s.Verdicts[reserve.NotOwner]), "path_ahead": int64(s.Verdicts[reserve.TooFarAhead]),
		"path_quota": int64(s.Verdicts[reserve.Quota]), "path_malformed": int64(s.Verdicts[reserve.Malformed]),
		"path_scheduled": int64(s.Scheduled), "path_waited_us": s.Waited.Microseconds(), "path_unwaited": int64(s.Unwaited), "path_given_up": int64(s.GivenUp),
		"path_corrected": int64(s.Corrected), "path_distrusted": int64(s.Distrusts),
		pathWaiting: int64(x.Own), pathWaits: waits,
	}
}

// counters adds those of this agent's own part.
func (p *paths) counters(into map[string]int64) {
	m := p.mover.Stats()
	for name, v := range map[string]int64{
		"path_requests": p.count.reserved.Load(), "path_fallbacks": p.count.fallbacks.Load(), "path_aside": p.count.aside.Load(),
		"transfers_sent": p.count.sent.Load(), "transfers_failed": p.count.failed.Load(), "transfer_tickets": p.count.received.Load(),
		"transfer_bytes_in": m.BytesIn, "transfer_bytes_out": m.BytesOut, "transfer_refused": m.Refused, "transfer_damaged": m.Damaged,
		"transfer_resumes": m.Resumes, "transfer_unpinned": m.Unpinned, "transfer_ports_taken": m.PortsTaken,
	} {
		into[name] = v
	}
}

// pathCounters adds all of them; the agent's lock is held.
func (a *Agent) pathCountersLocked(into map[string]int64) {
	if a.paths == nil {
		return
	}
	a.node.Table(a.now(), func(t *reserve.Table, now, _ time.Duration) {
		for name, v := range tableCounters(t, now) {
			into[name] = v
		}
	})
	a.paths.counters(into)
}
