package agent

import (
	"shoal/internal/ecmp"
	"shoal/internal/peer"
)

// What the admin API takes and gives about paths and transfers, in JSON. Times have their unit in their name, sizes are bytes.

// ReserveRequest asks for a path to a peer: for an engine's own transfer library, which then moves the bytes.
type ReserveRequest struct {
	Peer  peer.ID `json:"peer"`
	Bytes int64   `json:"bytes"`
	// Flows is how many flows the transfer consists of, for tensor-parallel engines: they are spread together. 0 means 1.
	Flows int `json:"flows,omitempty"`
	// Group names transfers that belong together; 0: none.
	Group uint64 `json:"group,omitempty"`
	// Policy is least, ark, split, shoal or ecmp; empty: as configured.
	Policy string `json:"policy,omitempty"`
	// Protocol is tcp (the default), udp, or roce: UDP to port 4791 from the ports that RoCE may use.
	Protocol string `json:"protocol,omitempty"`
	// Port is the destination port of the flows; 0: that of the peer's transfers, and 4791 for roce.
	Port uint16 `json:"port,omitempty"`
	// Intent announces: the bytes are only expected, ready in ReadyUS from now. Nothing is held, everyone knows; start begins it,
	// and waits for its turn where the policy is shoal. Where the time has come and nobody starts it, it is put off, and given
	// up a lease later.
	Intent  bool  `json:"intent,omitempty"`
	ReadyUS int64 `json:"ready_us,omitempty"`
}

// ReserveReply answers it, and StartRequest: one line of JSON, and while State is queued another one once it is granted.
type ReserveReply struct {
	State    string      `json:"state"` // granted, queued or intended; ended: released while it was queued, or lapsed
	ID       uint64      `json:"id"`    // 0 where nothing is held: nothing to renew or release
	LeaseMS  int64       `json:"lease_ms,omitempty"`
	Fallback bool        `json:"fallback,omitempty"` // by ECMP: every path is taken, or none is known
	Reason   string      `json:"reason,omitempty"`   // why none is known, or why it has ended
	Legs     []LegStatus `json:"legs,omitempty"`
}

// LegStatus is one flow's way.
type LegStatus struct {
	ID       uint64   `json:"id"`   // of its reservation: to renew and to release; 0: it has none
	Path     int      `json:"path"` // -1: wherever ECMP sends it
	Via      []string `json:"via,omitempty"`
	Bytes    int64    `json:"bytes"`
	Port     uint16   `json:"source_port,omitempty"`
	Ports    []uint16 `json:"source_ports,omitempty"` // further ones that lead there
	Label    uint32   `json:"flow_label,omitempty"`   // RoCE: the flow label that makes this port
	Reserved bool     `json:"reserved"`
}

// HoldRequest is about a reservation that is held: renew (Left bytes to move), start (an intent), or release.
type HoldRequest struct {
	ID   uint64 `json:"id"`
	Left int64  `json:"left,omitempty"`
}

// RenewReply says whether the reservation still stands, and where its next chunk goes: it may have lost a conflict.
type RenewReply struct {
	Held bool        `json:"held"`
	Legs []LegStatus `json:"legs,omitempty"`
}

// TransferRequest has bytes moved by this agent's own mover.
type TransferRequest struct {
	Peer peer.ID `json:"peer"`
	// File is below paths.dir. Empty: Bytes bytes of nothing, which nobody keeps: to measure with.
	File   string `json:"file,omitempty"`
	To     string `json:"to,omitempty"` // its name there; empty: File
	Bytes  int64  `json:"bytes,omitempty"`
	Policy string `json:"policy,omitempty"`
	// Pull has the peer send: its port counts, so it reserves.
	Pull bool `json:"pull,omitempty"`
	// ReadyUS announces: the bytes are there only in so long, at most 10 s. Not for a pull.
	ReadyUS int64 `json:"ready_us,omitempty"`
}

// TransferReply is one line of progress, or the result.
type TransferReply struct {
	Moved    int64   `json:"moved"`
	Done     bool    `json:"done"`
	Now      []int   `json:"now,omitempty"` // the paths that carry it from now on
	Error    string  `json:"error,omitempty"`
	TookNS   int64   `json:"took_ns,omitempty"`  // from when the bytes were ready to the receiver's last word
	Paths    []int64 `json:"paths,omitempty"`    // bytes by path
	AnyPath  int64   `json:"any_path,omitempty"` // bytes that went wherever ECMP sent them
	Moves    int     `json:"moves,omitempty"`
	Resumes  int     `json:"resumes,omitempty"`
	Fallback bool    `json:"fallback,omitempty"`
}

// PathMap is what is known of the ways to one peer.
type PathMap struct {
	Peer     peer.ID      `json:"peer"`
	From     string       `json:"from"`
	To       string       `json:"to"`
	Protocol string       `json:"protocol"`
	State    string       `json:"state"`  // verified, described, learned, learning or aside
	Reason   string       `json:"reason"` // how it is known, or why it is not
	Ports    ecmp.Range   `json:"ports"`
	Paths    []PathStatus `json:"paths"`
}

// PathStatus is one way.
type PathStatus struct {
	Path  int      `json:"path"`
	Via   []string `json:"via"`
	Links []string `json:"links"`
	Flows int      `json:"flows"` // reservations on its fullest link
	Ports []uint16 `json:"ports"`
	All   int      `json:"all,omitempty"` // source ports that lead there, of all of the range
}

// VerifyReply is what probes say of a map.
type VerifyReply struct {
	Peer     peer.ID `json:"peer"`
	Asked    int     `json:"asked"`
	Right    int     `json:"right"`
	Wrong    int     `json:"wrong"`
	Silent   int     `json:"silent"`
	State    string  `json:"state"`
	Reason   string  `json:"reason"`
	TookMS   int64   `json:"took_ms"`
	Mismatch []Wrong `json:"mismatch,omitempty"` // the first few
}

// Wrong is one port that does not lead where the map says.
type Wrong struct {
	Port     uint16 `json:"port"`
	Expected string `json:"expected"`
	Seen     string `json:"seen"`
}

// TableStatus is the whole table R(t), as this agent knows it.
type TableStatus struct {
	Self     peer.ID          `json:"self"`
	Policy   string           `json:"policy"`
	Fabric   string           `json:"fabric"` // digest; empty: none is described
	Digest   string           `json:"digest"` // of the table: equal at peers that know the same
	Entries  []TableEntry     `json:"entries"`
	Links    []LinkStatus     `json:"links"`
	Schedule ScheduleStatus   `json:"schedule"`
	Counters map[string]int64 `json:"counters"`
}

// ScheduleStatus is what policy shoal does now.
type ScheduleStatus struct {
	Mode       string `json:"mode"`                 // waiting, or least and why
	Waiters    int    `json:"waiters"`              // transfers of all peers that wait or are announced
	Own        int    `json:"own"`                  // of this agent
	DelayUS    int64  `json:"delay_us"`             // of messages, 99th percentile
	Efficiency int64  `json:"efficiency,omitempty"` // what moves of the nominal rate, in thousandths
	Slowdown   int64  `json:"slowdown"`             // transfers' times over the predicted ones, in thousandths
}

// TableEntry is one reservation.
type TableEntry struct {
	Owner peer.ID  `json:"owner"`
	ID    uint64   `json:"id"`
	Seq   uint64   `json:"seq"`
	Stamp string   `json:"stamp"`              // of the hybrid logical clock: time and count
	Phase string   `json:"phase"`              // active, intent, or waiting: an intent whose time has come, in the schedule
	Ready int64    `json:"ready_us,omitempty"` // Unix time
	End   int64    `json:"end_us,omitempty"`   // predicted, Unix time
	To    peer.ID  `json:"to"`
	Bytes int64    `json:"bytes"`
	Links []string `json:"links"`
}

// LinkStatus is what is on one link.
type LinkStatus struct {
	Link       string `json:"link"`
	Flows      int    `json:"flows"`
	Bytes      int64  `json:"bytes"`
	Capacity   int64  `json:"capacity,omitempty"`   // bit/s
	Background int64  `json:"background,omitempty"` // bit/s
}
