package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"shoal/internal/reserve"
)

// maxAnnounced is how long before its bytes are there a transfer can be asked for: a ticket waits for it.
const maxAnnounced = 10 * time.Second

// progressEvery is how often a transfer's progress is told.
const progressEvery = time.Second

func (p *paths) apiTransfer(w http.ResponseWriter, r *http.Request) error {
	var q TransferRequest
	if err := decode(r, &q); err != nil {
		return err
	}
	if err := q.Peer.Validate(); err != nil {
		return badRequest{fmt.Errorf("agent: peer: %w", err)}
	}
	if (q.File == "") == (q.Bytes == 0) || q.Bytes < 0 || q.Bytes > p.cfg.MaxBytes {
		return badRequest{fmt.Errorf("agent: give either a file or bytes, 1 to %d", p.cfg.MaxBytes)}
	}
	if ready := time.Duration(q.ReadyUS) * time.Microsecond; ready < 0 || ready > maxAnnounced || q.Pull && ready > 0 {
		return badRequest{fmt.Errorf("agent: ready_us %d; give 0 to %d, and 0 for a pull", q.ReadyUS, maxAnnounced.Microseconds())}
	}
	policy, err := p.policyOr(q.Policy)
	if err != nil {
		return err
	}
	as := q.To
	if as == "" {
		as = q.File
	}
	start := time.Now()
	if q.Pull {
		reply, err := p.pull(r.Context(), q.Peer, q.File, as, q.Bytes, q.Policy)
		if err != nil {
			return err
		}
		writeJSON(w, TransferReply{Moved: reply.Bytes, Done: true, TookNS: int64(time.Since(start))})
		return nil
	}
	lines := json.NewEncoder(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	m, err := p.moveWithProgress(r.Context(), q, as, policy, func(t TransferReply) {
		lines.Encode(t)
		http.NewResponseController(w).Flush()
	})
	out := TransferReply{Moved: m.Bytes, Done: true, TookNS: int64(m.took), Moves: m.Moves, Resumes: m.Resumes, Fallback: m.fallback}
	for _, leg := range m.Result.Paths {
		if leg.ID < 0 {
			out.AnyPath += leg.Bytes
			continue
		}
		for len(out.Paths) <= leg.ID {
			out.Paths = append(out.Paths, 0)
		}
		out.Paths[leg.ID] += leg.Bytes
	}
	if err != nil {
		out.Error = err.Error()
	}
	return lines.Encode(out)
}

// moveWithProgress moves, and calls tell where the paths change and about once in progressEvery: never at once with itself,
// and not after it returns.
func (p *paths) moveWithProgress(ctx context.Context, q TransferRequest, as string, policy reserve.Policy, tell func(TransferReply)) (moved, error) {
	type end struct {
		m   moved
		err error
	}
	ended, now := make(chan end, 1), make(chan []int, 16)
	var at atomic.Int64
	go func() {
		m, err := p.move(ctx, q.Peer, q.File, as, q.Bytes, policy, time.Duration(q.ReadyUS)*time.Microsecond, at.Store, func(paths []int) {
			select {
			case now <- paths:
			default:
			}
		})
		ended <- end{m, err}
	}()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	told := int64(0)
	for {
		select {
		case paths := <-now:
			tell(TransferReply{Moved: at.Load(), Now: paths})
		case <-tick.C:
			if n := at.Load(); n != told {
				told = n
				tell(TransferReply{Moved: n})
			}
		case e := <-ended:
			for {
				select {
				case paths := <-now:
					tell(TransferReply{Moved: at.Load(), Now: paths})
					continue
				default:
				}
				return e.m, e.err
			}
		}
	}
}
