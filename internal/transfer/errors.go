package transfer

import (
	"errors"
	"fmt"

	"shoal/internal/peer"
)

// What a caller may want to tell apart, with errors.Is.
var (
	// ErrRefused: the receiver said no. The error is a *RefusedError, which says why.
	ErrRefused = errors.New("transfer: refused")
	// ErrExpired: of the refusals, that the ticket came too late. A new ticket may do.
	ErrExpired = errors.New("transfer: the ticket has expired")
	// ErrMismatch: bytes arrived other than they were sent, more often than they are sent again, or all in all. Nothing
	// was kept.
	ErrMismatch = errors.New("transfer: the checksum does not match")
	// ErrCut: no connection moved anything for Config.Stall. A new ticket for the same file goes on where this one ended.
	ErrCut = errors.New("transfer: cut")
	// ErrBusy: a limit of this side or of the other is reached. Later it may go.
	ErrBusy = errors.New("transfer: busy")
	// ErrClosed: the mover is closed.
	ErrClosed = errors.New("transfer: closed")
	// ErrSource: what is to be sent cannot be read.
	ErrSource = errors.New("transfer: the source cannot be read")
)

// Reason is why a receiver refuses.
type Reason uint8

const (
	NoTicket      Reason = iota + 1 // never given, given to another peer, or the proof is wrong
	UsedTicket                      // by another transfer
	ExpiredTicket                   // not used, or not gone on with, in time
	WrongSize                       // the transfer's size is not the ticket's, or its chunks are too many or too large
	BadChunk                        // outside the transfer, of a wrong length, missing at the end, or other bytes than those that are there
	Mismatch                        // of the checksum of everything
	Busy                            // a limit is reached
	SinkFailed                      // what takes the bytes does not: a full disk
	WrongPeer                       // another peer was meant, or this one names itself wrongly
	BadVersion                      // no common version of the protocol
	Protocol                        // a message that makes no sense here
	Cancelled                       // by the sender, before
	Replaced                        // by a newer ticket for the same file
	Closing                         // the receiver shuts down
	reasons
)

func (r Reason) String() string {
	names := [...]string{"no reason", "no such ticket", "the ticket is used", "the ticket has expired", "wrong size", "bad chunk",
		"the checksum does not match", "busy", "the sink failed", "wrong peer", "version", "protocol", "cancelled", "replaced", "closing"}
	if int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// RefusedError is a receiver's no.
type RefusedError struct {
	Peer   peer.ID // who refuses
	Reason Reason
	Text   string // for people; may be empty
}

func (e *RefusedError) Error() string {
	s := fmt.Sprintf("transfer: %s refuses: %s", e.Peer, e.Reason)
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// Is makes the refusals that a caller handles in a way of their own be those errors too.
func (e *RefusedError) Is(target error) bool {
	switch target {
	case ErrRefused:
		return true
	case ErrExpired:
		return e.Reason == ExpiredTicket
	case ErrMismatch:
		return e.Reason == Mismatch
	case ErrBusy:
		return e.Reason == Busy
	}
	return false
}

// passing says that the same may be accepted a moment later.
func (e *RefusedError) passing() bool { return e.Reason == Busy || e.Reason == Closing }
