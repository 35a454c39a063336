package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"shoal/internal/ecmp"
	"shoal/internal/node"
	"shoal/internal/peer"
	"shoal/internal/reserve"
)

// The admin API of paths and transfers. What changes something is a POST whose content type is application/json: no page in
// a browser of this machine can send one without asking first.
//
//	POST /v1/paths/reserve   ReserveRequest -> ReserveReply, another line once what is queued is granted
//	POST /v1/paths/start     HoldRequest of an intent -> ReserveReply
//	POST /v1/paths/renew     HoldRequest -> RenewReply
//	POST /v1/paths/release   HoldRequest -> {}
//	GET  /v1/paths/table     TableStatus
//	GET  /v1/paths/map       ?peer=&protocol=&all= -> PathMap
//	POST /v1/paths/verify    ?peer=&protocol=&ports= -> VerifyReply
//	POST /v1/paths/load      link name -> bit/s of traffic that reserves nothing
//	POST /v1/transfers       TransferRequest -> TransferReply, a line a second of progress, the last one done
func (p *paths) handle(m *http.ServeMux) {
	post := func(path string, f func(http.ResponseWriter, *http.Request) error) {
		m.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); strings.TrimSpace(kind) != "application/json" {
				http.Error(w, "agent: the content type must be application/json", http.StatusUnsupportedMediaType)
				return
			}
			answer(w, f(w, r))
		})
	}
	get := func(path string, f func(http.ResponseWriter, *http.Request) error) {
		m.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { answer(w, f(w, r)) })
	}
	post("/v1/paths/reserve", p.apiReserve)
	post("/v1/paths/start", p.apiStart)
	post("/v1/paths/renew", p.apiRenew)
	post("/v1/paths/release", p.apiRelease)
	post("/v1/paths/verify", p.apiVerify)
	post("/v1/paths/load", p.apiLoad)
	post("/v1/transfers", p.apiTransfer)
	get("/v1/paths/table", p.apiTable)
	get("/v1/paths/map", p.apiMap)
}

// badRequest is an error of the caller's.
type badRequest struct{ error }

// answer says what went wrong, where something did and nothing has been said yet.
func answer(w http.ResponseWriter, err error) {
	var bad badRequest
	switch {
	case err == nil:
	case errors.As(err, &bad):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case errors.Is(err, errNoTransfers):
		http.Error(w, err.Error(), http.StatusNotFound)
	default:
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

// maxRequest bounds what is posted, in bytes.
const maxRequest = 64 << 10

func decode(r *http.Request, into any) error {
	d := json.NewDecoder(io.LimitReader(r.Body, maxRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return badRequest{fmt.Errorf("agent: the request: %w", err)}
	}
	return nil
}

// target reads the target of a request.
func (p *paths) target(id peer.ID, protocol string, port uint16) (target, error) {
	if err := id.Validate(); err != nil {
		return target{}, badRequest{fmt.Errorf("agent: peer: %w", err)}
	}
	t := target{peer: id, proto: ecmp.TCP, port: port}
	switch protocol {
	case "", "tcp":
	case "udp":
		t.proto = ecmp.UDP
	case "roce":
		t.proto = ecmp.UDP
		if t.port == 0 {
			t.port = rocePort
		}
	default:
		return t, badRequest{fmt.Errorf("agent: protocol %q is none of tcp, udp, roce", protocol)}
	}
	return t, nil
}

// policyOr reads a policy, the configured one where there is none.
func (p *paths) policyOr(name string) (reserve.Policy, error) {
	policy := p.policy
	if name != "" {
		if err := policy.UnmarshalText([]byte(name)); err != nil {
			return policy, badRequest{err}
		}
	}
	return policy, nil
}

func (p *paths) apiReserve(w http.ResponseWriter, r *http.Request) error {
	var q ReserveRequest
	if err := decode(r, &q); err != nil {
		return err
	}
	t, err := p.target(q.Peer, q.Protocol, q.Port)
	if err != nil {
		return err
	}
	policy, err := p.policyOr(q.Policy)
	if err != nil {
		return err
	}
	to, err := p.to(t)
	if err != nil {
		return err
	}
	if !to.usable() {
		p.count.aside.Add(1)
		writeJSON(w, ReserveReply{State: "granted", Fallback: true, Reason: to.reason, Legs: []LegStatus{{Path: anyPath, Bytes: q.Bytes}}})
		return nil
	}
	req := reserve.Request{Bytes: q.Bytes, Flows: q.Flows, Group: q.Group, Policy: policy}
	if q.Intent {
		req.Phase = reserve.Intent
		req.Ready = time.Now().UnixMilli() + q.ReadyMS
	}
	g, err := p.reserve(to, req)
	if err != nil {
		return badRequest{err}
	}
	reply := to.reply(&g)
	if q.Intent && g.Queued {
		reply.State = "intended"
	}
	writeJSON(w, reply)
	return nil
}

// reply is a grant with the ports of its paths.
func (w *ways) reply(g *reserve.Grant) ReserveReply {
	r := ReserveReply{State: "granted", ID: g.ID, LeaseMS: g.Lease.Milliseconds(), Fallback: g.Fallback}
	if g.Queued {
		r.State = "queued"
	}
	for i := range g.Legs {
		r.Legs = append(r.Legs, w.leg(&g.Legs[i], i))
	}
	return r
}

// leg is one flow's way; n spreads the flows of one path over its ports, since two flows must not have one 5-tuple.
func (w *ways) leg(l *reserve.Leg, n int) LegStatus {
	s := LegStatus{ID: l.ID, Path: l.Path, Bytes: l.Share, Reserved: l.Reserved, Via: w.paths[l.Path].Via}
	ports := w.ports.Ports(l.Path)
	if len(ports) > 0 {
		first := n % len(ports)
		s.Port = ports[first]
		s.Ports = append(slices.Clone(ports[first:]), ports[:first]...)
		if w.target.port == rocePort {
			s.Label, _ = ecmp.FlowLabelOfPort(s.Port)
		}
	}
	return s
}

// table runs f with the table.
func (p *paths) table(f func(t *reserve.Table, now, wall time.Duration)) {
	p.a.locked(func(n *node.Node, now time.Duration) { n.Table(now, f) })
}

func (p *paths) apiStart(w http.ResponseWriter, r *http.Request) error {
	var q HoldRequest
	if err := decode(r, &q); err != nil {
		return err
	}
	var g reserve.Grant
	var held bool
	var dst peer.ID
	p.table(func(t *reserve.Table, now, wall time.Duration) {
		for _, row := range t.Rows(nil) {
			if row.Owner == p.a.id && row.Entry.ID == q.ID {
				dst = row.Entry.Dst
			}
		}
		held = t.Start(now, wall, q.ID, &g)
	})
	if !held {
		return badRequest{fmt.Errorf("agent: reservation %d is not held any more; reserve anew", q.ID)}
	}
	to, err := p.to(target{peer: dst, proto: ecmp.TCP})
	if err != nil {
		return err
	}
	if !to.usable() {
		writeJSON(w, ReserveReply{State: "granted", Fallback: true, Reason: to.reason})
		return nil
	}
	writeJSON(w, to.reply(&g))
	return nil
}

func (p *paths) apiRenew(w http.ResponseWriter, r *http.Request) error {
	var q HoldRequest
	if err := decode(r, &q); err != nil {
		return err
	}
	var reply RenewReply
	var dst peer.ID
	var leg reserve.Leg
	p.table(func(t *reserve.Table, now, wall time.Duration) {
		reply.Held = t.Renew(now, wall, q.ID, q.Left)
		var moved bool
		if leg, moved = t.Move(now, wall, q.ID); moved {
			for _, row := range t.Rows(nil) {
				if row.Owner == p.a.id && row.Entry.ID == q.ID {
					dst = row.Entry.Dst
				}
			}
		}
	})
	if dst != "" {
		if to, err := p.to(target{peer: dst, proto: ecmp.TCP}); err == nil && to.usable() {
			reply.Legs = []LegStatus{to.leg(&leg, 0)}
		}
	}
	writeJSON(w, reply)
	return nil
}

func (p *paths) apiRelease(w http.ResponseWriter, r *http.Request) error {
	var q HoldRequest
	if err := decode(r, &q); err != nil {
		return err
	}
	p.table(func(t *reserve.Table, now, wall time.Duration) { t.Release(now, wall, q.ID) })
	writeJSON(w, struct{}{})
	return nil
}

func (p *paths) apiLoad(w http.ResponseWriter, r *http.Request) error {
	loads := map[string]int64{}
	if err := decode(r, &loads); err != nil {
		return err
	}
	names := make([]string, 0, len(loads))
	for name, bps := range loads {
		if bps < 0 || bps > reserve.MaxCapacity {
			return badRequest{fmt.Errorf("agent: %q: %d bit/s; give 0 to %d", name, bps, int64(reserve.MaxCapacity))}
		}
		names = append(names, name)
	}
	slices.Sort(names)
	full := ""
	p.table(func(t *reserve.Table, _, _ time.Duration) {
		for _, name := range names {
			if !t.Background(ecmp.NameLink(name), loads[name]) {
				full = name
			}
		}
	})
	if full != "" {
		return badRequest{fmt.Errorf("agent: %q: too many links have background traffic; set those that are over to 0", full)}
	}
	writeJSON(w, struct{}{})
	return nil
}

func (p *paths) apiTable(w http.ResponseWriter, _ *http.Request) error {
	s := TableStatus{Self: p.a.id, Policy: p.policy.String(), Entries: []TableEntry{}, Links: []LinkStatus{}}
	if p.fabric != nil {
		s.Fabric = fmt.Sprintf("%016x", p.fabric.Digest())
	}
	var rows []reserve.Row
	var links []reserve.LinkLoad
	p.table(func(t *reserve.Table, _, _ time.Duration) {
		rows, links = t.Rows(nil), t.Links(nil)
		s.Digest = fmt.Sprintf("%016x", t.Digest())
		s.Counters = tableCounters(t)
	})
	p.counters(s.Counters)
	for _, r := range rows {
		e := TableEntry{Owner: r.Owner, ID: r.Entry.ID, Seq: r.Entry.Seq, Stamp: r.Entry.Stamp.String(), Phase: r.Entry.Phase.String(), To: r.Entry.Dst, Bytes: r.Entry.Bytes, Links: []string{}}
		for _, l := range r.Entry.Links {
			e.Links = append(e.Links, p.linkName(l))
		}
		s.Entries = append(s.Entries, e)
	}
	for _, l := range links {
		s.Links = append(s.Links, LinkStatus{p.linkName(l.ID), l.Flows, l.Bytes, l.Capacity, l.Background})
	}
	writeJSON(w, s)
	return nil
}

func (p *paths) apiMap(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	t, err := p.target(peer.ID(q.Get("peer")), q.Get("protocol"), 0)
	if err != nil {
		return err
	}
	to, err := p.to(t)
	if err != nil {
		return err
	}
	writeJSON(w, p.pathMap(to, q.Get("all") != ""))
	return nil
}

// pathMap is what is known of the ways to a target, for people.
func (p *paths) pathMap(w *ways, all bool) PathMap {
	m := PathMap{Peer: w.target.peer, From: p.self.Addr().String(), To: w.addr.String(), Protocol: protoName(w.target.proto), State: w.state, Reason: w.reason,
		Ports: p.rangeOf(w.target), Paths: []PathStatus{}}
	var links []reserve.LinkLoad
	p.table(func(t *reserve.Table, _, _ time.Duration) { links = t.Links(nil) })
	flows := map[ecmp.LinkID]int{}
	for _, l := range links {
		flows[l.ID] = l.Flows
	}
	var whole *ecmp.PortMap
	if all && w.route != nil {
		whole = w.route.Map(p.tuple(w), m.Ports)
	}
	for i, path := range w.paths {
		s := PathStatus{Path: i, Via: path.Via, Links: []string{}, Ports: w.ports.Ports(i)}
		for _, id := range path.Links {
			s.Links = append(s.Links, p.linkName(id))
			s.Flows = max(s.Flows, flows[id])
		}
		if whole != nil {
			s.All = len(whole.Ports(i))
		}
		m.Paths = append(m.Paths, s)
	}
	return m
}

// Interleaved is at most n ports, one a path in turn, with commas: what MC_MLX5_QP_UDP_SPORTS takes.
func (m *PathMap) Interleaved(n int) string {
	var b strings.Builder
	for k, left := 0, true; left && n > 0; k++ {
		left = false
		for _, p := range m.Paths {
			if k < len(p.Ports) && n > 0 {
				if b.Len() > 0 {
					b.WriteByte(',')
				}
				b.WriteString(strconv.Itoa(int(p.Ports[k])))
				left = true
				n--
			}
		}
	}
	return b.String()
}

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
		at := leg.ID
		if at < 0 {
			at = 0
		}
		for len(out.Paths) <= at {
			out.Paths = append(out.Paths, 0)
		}
		out.Paths[at] += leg.Bytes
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
	ended, at, now := make(chan end, 1), make(chan int64, 1), make(chan []int, 16)
	go func() {
		m, err := p.move(ctx, q.Peer, q.File, as, q.Bytes, policy, func(n int64) {
			select {
			case at <- n:
			default:
			}
		}, func(paths []int) {
			select {
			case now <- paths:
			default:
			}
		})
		ended <- end{m, err}
	}()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case e := <-ended:
			return e.m, e.err
		case paths := <-now:
			tell(TransferReply{Now: paths})
		case <-tick.C:
			select {
			case n := <-at:
				tell(TransferReply{Moved: n})
			default:
			}
		}
	}
}
