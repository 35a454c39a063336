package agent

import (
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

// The admin API of paths and transfers. What changes something is a POST whose content type is application/json. No page in a
// browser of this machine can send one: it would have to ask first, or pretend to be of this machine, which ownOnly notices.
// Every user of this machine can; the unix socket is this user's only.
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
	if q.Bytes < 0 || q.Bytes > reserve.MaxBytes || q.Flows < 0 || q.Flows > reserve.MaxFlows || q.ReadyUS < 0 || q.ReadyUS > reserve.MaxReady.Microseconds() {
		return badRequest{fmt.Errorf("agent: bytes %d, flows %d, ready_us %d; give at most %d, %d and %d, and nothing negative", q.Bytes, q.Flows, q.ReadyUS,
			int64(reserve.MaxBytes), reserve.MaxFlows, reserve.MaxReady.Microseconds())}
	}
	to, err := p.to(t)
	if err != nil {
		return err
	}
	if !to.usable() {
		p.count.aside.Add(1)
		reply := ReserveReply{State: "granted", Fallback: true, Reason: to.reason}
		flows := int64(max(1, q.Flows))
		for range flows {
			reply.Legs = append(reply.Legs, LegStatus{Path: anyPath, Bytes: q.Bytes / flows})
		}
		writeJSON(w, reply)
		return nil
	}
	req := reserve.Request{Bytes: q.Bytes, Flows: q.Flows, Group: q.Group, Policy: policy}
	if q.Intent {
		req.Phase = reserve.Intent
		req.Ready = time.Now().UnixMicro() + q.ReadyUS
	}
	g, turn, err := p.reserve(to, req)
	if err != nil {
		return badRequest{err}
	}
	p.issue(to, &g)
	reply := to.reply(&g)
	if q.Intent && g.Queued {
		reply.State = "intended"
		turn = nil
	}
	return p.replyInTurn(w, r, to, reply, turn)
}

// replyInTurn answers, and once more when what is queued is granted. Who goes away before gives its place up.
func (p *paths) replyInTurn(w http.ResponseWriter, r *http.Request, to *ways, reply ReserveReply, turn *waitingTurn) error {
	if turn == nil {
		writeJSON(w, reply)
		return nil
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines := json.NewEncoder(w)
	lines.Encode(reply)
	http.NewResponseController(w).Flush()
	g, err := p.await(r.Context(), reply.ID, turn)
	switch {
	case err != nil: // the client has gone
		p.forgetIssued(reply.ID)
		return nil
	case g == nil:
		p.forgetIssued(reply.ID)
		end := ReserveReply{State: "ended", ID: reply.ID, Reason: "it was released while it waited"}
		if turn.lapsed {
			end.Reason = "it has lapsed while it waited: this agent stood still, or the clock was set back; reserve anew"
		}
		return lines.Encode(end)
	}
	p.issue(to, g)
	return lines.Encode(to.reply(g))
}

func (p *paths) forgetIssued(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.issued, id)
}

// issue remembers in which ways the paths of a grant are counted: what is known of the target may change while it is held.
func (p *paths) issue(w *ways, g *reserve.Grant) {
	p.mu.Lock()
	full := len(p.issued) >= 2*reserve.MaxPerOwner
	p.mu.Unlock()
	if full { // most have ended without a release
		held := map[uint64]bool{}
		p.table(func(t *reserve.Table, _, _ time.Duration) {
			for _, row := range t.Rows(nil) {
				if row.Owner == p.a.id {
					held[row.Entry.ID] = true
				}
			}
		})
		p.mu.Lock()
		for id := range p.issued {
			if !held[id] {
				delete(p.issued, id)
			}
		}
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if g.ID != 0 {
		p.issued[g.ID] = w
	}
	for _, l := range g.Legs {
		if l.ID != 0 {
			p.issued[l.ID] = w
		}
	}
}

// issuedIn is where the paths of a reservation are counted, nil for one that the API has not given out.
func (p *paths) issuedIn(id uint64) *ways {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.issued[id]
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

// repeating are the low bits of a reservation's number, which name a place and come again; the others count up.
const repeating = 10

// leg is one flow's way. Its number spreads the flows of one path over its ports, since no two may have one 5-tuple; of flows
// without a number their place does.
func (w *ways) leg(l *reserve.Leg, place int) LegStatus {
	s := LegStatus{ID: l.ID, Path: l.Path, Bytes: l.Share, Reserved: l.Reserved, Via: w.paths[l.Path].Via}
	if ports := w.ports.Ports(l.Path); len(ports) > 0 {
		first := place % len(ports)
		if l.ID != 0 {
			first = int((l.ID >> repeating) % uint64(len(ports)))
		}
		s.Port = ports[first]
		s.Ports = append(slices.Clone(ports[first:]), ports[:first]...)
		if w.target.isRoCE() {
			s.Label, _ = ecmp.FlowLabelOfPort(s.Port) // all ports of RoCE's range have one
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
	in := p.issuedIn(q.ID)
	var g reserve.Grant
	var turn *waitingTurn
	what := ended
	if in != nil {
		g, turn, what = p.start(q.ID)
	}
	switch what {
	case ended:
		return badRequest{fmt.Errorf("agent: reservation %d is not held any more; reserve anew", q.ID)}
	case waited:
		return badRequest{fmt.Errorf("agent: reservation %d waits for its turn already; whoever asked first is told, by another line of that answer", q.ID)}
	}
	p.issue(in, &g)
	return p.replyInTurn(w, r, in, in.reply(&g), turn)
}

func (p *paths) apiRenew(w http.ResponseWriter, r *http.Request) error {
	var q HoldRequest
	if err := decode(r, &q); err != nil {
		return err
	}
	var reply RenewReply
	if in := p.issuedIn(q.ID); in != nil {
		var leg reserve.Leg
		moved := false
		p.table(func(t *reserve.Table, now, wall time.Duration) {
			reply.Held = t.Renew(now, wall, q.ID, q.Left)
			leg, moved = t.Move(now, wall, q.ID)
		})
		if moved {
			reply.Legs = []LegStatus{in.leg(&leg, 0)}
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
	if p.issuedIn(q.ID) != nil { // those of the own mover are not the API's to release
		p.end(q.ID)
		p.forgetIssued(q.ID)
	}
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
	for _, name := range names {
		if !p.knowsLink(name) {
			return badRequest{fmt.Errorf("agent: no link is called %q; `shoal paths map` names them", name)}
		}
	}
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
	var at int64
	p.table(func(t *reserve.Table, now, wall time.Duration) {
		at = wall.Microseconds()
		x := t.Schedule(now)
		s.Schedule = ScheduleStatus{x.Mode.String(), x.Waiters, x.Own, x.Delay.Microseconds(), x.Efficiency, x.Slowdown}
		rows, links = t.Rows(nil), t.Links(nil)
		s.Digest = fmt.Sprintf("%016x", t.Digest())
		s.Counters = tableCounters(t, now)
	})
	p.counters(s.Counters)
	for _, r := range rows {
		e := TableEntry{Owner: r.Owner, ID: r.Entry.ID, Seq: r.Entry.Seq, Stamp: r.Entry.Stamp.String(), Phase: r.Entry.Phase.String(), To: r.Entry.Dst, Bytes: r.Entry.Bytes, Ready: r.Entry.Ready, End: r.Entry.End, Links: []string{}}
		if r.Entry.Phase == reserve.Intent && r.Entry.End > 0 && r.Entry.Ready <= at {
			e.Phase = "waiting"
		}
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
