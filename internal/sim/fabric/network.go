package fabric

import "shoal/internal/sim"

// ID names a flow or a message that is under way. It is used again after its last event.
type ID int32

// Spread is how the packets of one flow choose among its Paths: what switches or network cards of other systems do. The
// zero value is what ECMP and this project do.
type Spread uint8

const (
	First   Spread = iota // all packets take the first of Paths, until Move
	Spray                 // every packet takes a random one of Paths; the receiver takes them in any order
	Flowlet               // a random one of Paths after each gap of Config.FlowletGap between two packets
	PLB                   // as Protective Load Balancing (SIGCOMM 2022): a random other one after rounds with many ECN marks
)

// Flow is what Start begins: bytes from one host to another.
type Flow struct {
	Src, Dst int
	Bytes    int64
	Paths    []int // of Topology.Paths(Src, Dst)
	Spread   Spread
	Back     int // of Topology.Paths(Dst, Src): the way of the acknowledgements
}

// Message is one datagram of the control plane that travels in the data fabric.
type Message struct {
	Src, Dst int
	Bytes    int64 // on the wire
	Path     int   // of Topology.Paths(Src, Dst)
	Tag      int64 // for who sends it
}

// EventKind says what an Event is about.
type EventKind uint8

const (
	Done    EventKind = iota // the last acknowledgement of the flow has reached its sender
	Arrived                  // the message has reached its receiver
)

// Event is what happened in the network.
type Event struct {
	At   sim.Time
	Kind EventKind
	ID   ID    // of a flow
	Tag  int64 // of a message
}

// Network moves bytes in virtual time: packet by packet, or as a fluid. Its owner alternates between Step and changes at
// the time Now. Nothing that it returns needs to be given back.
type Network interface {
	// Topology is the truth about the network, as it is now: SetLink changes it.
	Topology() *Topology
	// Now is where the simulation stands.
	Now() sim.Time
	// Start begins a flow, at Now.
	Start(f Flow) ID
	// Move sends what has not been sent yet over another path. A flow's packets never overtake each other: packets wait
	// until those on the old path have been acknowledged.
	Move(id ID, path, back int)
	// Left is how many bytes of a flow have not been acknowledged.
	Left(id ID) int64
	// Send lets a message go, at Now. One that gets lost has no event.
	Send(m Message)
	// SetLink takes a link down, with everything that is on it, or up again; both directions of a cable are two links.
	// Flows on it stand still until Move, or until it is up.
	SetLink(l LinkIndex, up bool)
	// Step goes on until something happens, and returns it, but no further than until: then Now is until, what is due at
	// until has not happened yet, and ok is false.
	Step(until sim.Time) (e Event, ok bool)
	// Load is what a link carries: bytes that have left it since the start, and bytes that wait for it now (always 0 in a
	// fluid).
	Load(l LinkIndex) (sent, queued int64)
	// Digest is of all events and times so far.
	Digest() sim.Digest
	// Check says what is wrong in the network's own accounts: bytes that are neither here nor there, packets that overtook
	// others, losses where nothing may be lost. nil where all is well. It may be called between two steps.
	Check() error
}
