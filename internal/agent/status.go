package agent

import (
	"time"

	"shoal/internal/peer"
)

// Status is what the admin API answers at GET /status: this agent's view of the shoal, at one moment.
type Status struct {
	Self        peer.ID          `json:"self"`
	Version     string           `json:"version"` // of the program
	Incarnation uint64           `json:"incarnation"`
	Policy      string           `json:"policy"`
	UptimeMS    int64            `json:"uptime_ms"`
	State       string           `json:"state"` // ready, degraded (own engine down, peers serve), draining, or starting
	Gateway     string           `json:"gateway"`
	Insecure    bool             `json:"insecure,omitempty"`
	Peers       []PeerStatus     `json:"peers"` // sorted by ID, the own one among them
	Counters    map[string]int64 `json:"counters"`
}

// PeerStatus is one peer as this agent sees it.
type PeerStatus struct {
	ID          peer.ID       `json:"id"`
	Self        bool          `json:"self,omitempty"`
	Alive       bool          `json:"alive"`
	Addr        string        `json:"addr"`               // of its peer port
	Gateway     string        `json:"gateway"`            // of its OpenAI API, as it says
	Transfer    string        `json:"transfer,omitempty"` // where it takes in KV transfers, as it says
	Engine      string        `json:"engine"`             // adapter; empty: routes only
	Emulated    bool          `json:"emulated,omitempty"`
	Models      []string      `json:"models"`
	RTT         time.Duration `json:"rtt_ns"` // 0 until measured
	Incarnation uint64        `json:"incarnation"`
	DocVersion  uint64        `json:"doc_version"`
	StaleMS     int64         `json:"stale_ms"` // since the last news of its document; Unknown (-1): none yet
	Blocks      int           `json:"blocks"`   // text blocks that it holds, as known here
	Digest      string        `json:"digest"`
	Load        peer.Load     `json:"load"`
	Pending     int           `json:"pending"`   // requests that this agent has sent it and that no report covers yet
	Forwarded   int64         `json:"forwarded"` // requests that this agent has sent it since its start
	Declined    int64         `json:"declined"`  // of them, those it declined
	Failed      int64         `json:"failed"`    // of them, those that failed before their first byte
}
