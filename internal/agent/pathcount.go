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

// pathWaited is how long own transfers waited, in us; a metric of it is in seconds.
const pathWaited = "path_waited_us"

// pathHelp says what a counter of paths or transfers counts; empty: it is none.
func pathHelp(name string) string {
	switch name {
	case "path_reserved":
		return "Own reservations begun, announced ones too."
	case "path_released":
		return "Own reservations released."
	case "path_conflicts":
		return "Own reservations that lost a conflict: another peer's of the same path came before."
	case "path_moves":
		return "Own reservations moved to another path for that."
	case "path_moves_refused":
		return "Moves not made, since the reservation had moved too often."
	case "path_lapsed":
		return "Own reservations that ended for want of bytes, or of a start."
	case "path_expired":
		return "Other peers' reservations that ended because nobody renewed them."
	case "path_forgotten":
		return "Other peers' reservations that ended with their owner, or its restart."
	case "path_flows_unreserved":
		return "Own flows without a reservation where the policy wanted one."
	case "path_heard":
		return "Messages and entries about other peers' reservations that were taken in."
	case "path_heard_twice":
		return "Of those heard, known already."
	case "path_old":
		return "Of those heard, older than what is known."
	case "path_not_owner":
		return "Of those heard, not from the peer that they are about."
	case "path_ahead":
		return "Of those heard, refused because their time is too far ahead of the own clock."
	case "path_quota":
		return "Of those heard, refused because a limit is reached."
	case "path_malformed":
		return "Of those heard, refused because no reservation can be like that."
	case "path_scheduled":
		return "Own transfers that began at their turn (policy shoal)."
	case pathWaited:
		return "Time from when the bytes of these were ready until their turn, together."
	case "path_unwaited":
		return "Own transfers that policy shoal had begin without a turn, as by least: nothing to wait by, or given up."
	case "path_given_up":
		return "Own transfers whose turn did not come within paths.give_up."
	case "path_corrected":
		return "Predicted ends of own transfers that were told anew."
	case "path_distrusted":
		return "Times that transfers took longer than predicted, beyond paths.max_slowdown_permille: least decides for a while."
	case "path_requests":
		return "Paths asked for, by the mover and by the API."
	case "path_fallbacks":
		return "Of these, granted with a flow that is not reserved."
	case "path_aside":
		return "Transfers to peers to which no path can be chosen: they went where ECMP sends them."
	case "transfers_sent":
		return "Transfers sent by the mover."
	case "transfers_failed":
		return "Transfers that the mover could not send."
	case "transfer_tickets":
		return "Tickets given to peers that want to send."
	case "transfer_bytes_in":
		return "Bytes of transfers taken in: verified and written."
	case "transfer_bytes_out":
		return "Bytes of transfers sent: acknowledged."
	case "transfer_refused":
		return "Connections and messages that the mover refused."
	case "transfer_damaged":
		return "Chunks whose checksum was wrong."
	case "transfer_resumes":
		return "Stripes of transfers that went on after a cut."
	case "transfer_unpinned":
		return "Connections that left from any port, since none of their path could be had."
	case "transfer_ports_taken":
		return "Source ports that could not be used, of a path that had others."
	}
	return ""
}

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
		"path_scheduled": int64(s.Scheduled), pathWaited: s.Waited.Microseconds(), "path_unwaited": int64(s.Unwaited), "path_given_up": int64(s.GivenUp),
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
