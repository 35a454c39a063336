package route

import "fmt"

// Reason is why a decision fell as it did, in one word for headers and counters. The zero value is no decision.
type Reason uint8

// A peer was chosen.
const (
	NotDecided    Reason = iota
	ByLocal              // the policy serves at home
	ByRandom             // the policy draws
	ByRoundRobin         // the policy takes turns
	ByPrefix             // another peer holds more of the prompt, by enough
	ByHome               // home is best, or nobody is better by enough to leave it
	ByCost               // another peer costs less, by enough, without holding more of the prompt
	BySpread             // several cost nearly the same: the rendezvous hash chose
	ByAllPushBack        // everyone who could serve it pushes back: the home queue takes it, else the least loaded
)

// Nobody was chosen.
const (
	NoCandidate Reason = iota + 32 // no peer serves the model
	AllTried                       // every peer that serves it has declined, failed, or cannot be reached
	AllDraining                    // every peer that serves it is shutting down, or its engine is down
	AllDown                        // every engine that serves it is down
)

func (r Reason) String() string {
	switch r {
	case NotDecided:
		return "not-decided"
	case ByLocal:
		return "local"
	case ByRandom:
		return "random"
	case ByRoundRobin:
		return "round-robin"
	case ByPrefix:
		return "prefix"
	case ByHome:
		return "home"
	case ByCost:
		return "cost"
	case BySpread:
		return "spread"
	case ByAllPushBack:
		return "all-push-back"
	case NoCandidate:
		return "no-candidate"
	case AllTried:
		return "all-tried"
	case AllDraining:
		return "all-draining"
	case AllDown:
		return "all-down"
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Exclusion is why a candidate could not be chosen. The zero value is that it could.
type Exclusion uint8

const (
	Eligible    Exclusion = iota
	Tried                 // set by the caller: it declined, pushed back or failed for this request already
	Unreachable           // set by the caller: not a live member, or no protocol version in common
	NoEngine              // its role is route-only
	Down                  // its engine does not answer
	Draining              // its agent is shutting down
	PushedBack            // it asks for nothing new, and others do not
)

func (e Exclusion) String() string {
	switch e {
	case Eligible:
		return ""
	case Tried:
		return "tried"
	case Unreachable:
		return "unreachable"
	case NoEngine:
		return "no-engine"
	case Down:
		return "engine-down"
	case Draining:
		return "draining"
	case PushedBack:
		return "push-back"
	}
	return fmt.Sprintf("exclusion(%d)", uint8(e))
}
