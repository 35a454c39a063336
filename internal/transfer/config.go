package transfer

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"
)

// Config is how an agent moves bytes. Start from Defaults.
type Config struct {
	// Listen is the address that other agents send to, host:port. Empty: this one only sends.
	Listen string
	// Source is the address that connections leave from, on hosts with several. Zero: the kernel's choice.
	Source netip.Addr
	// Dir is where FileSink's files of this agent arrive; nobody else's part files may be in it, as New removes them.
	// Empty: there is none.
	Dir string
	// Chunk is the unit of checksums, of resending and of moving to another path, in bytes. The smaller of both sides'
	// counts. Larger: fewer messages, longer before a move takes place, more memory a connection, and beyond the
	// processor's cache slower. Smaller: the opposite, and more of the two sides' talk; on slow links it should take
	// about 10 ms.
	Chunk int
	// Unsent is how much the kernel may hold, in bytes, that a connection has not sent yet: it still goes by the old path
	// after a move. More: fewer wake-ups of the sender.
	Unsent int
	// MaxTransfers bounds the transfers that are received at once, and those that are sent.
	MaxTransfers int
	// MaxConns bounds the connections that others have open to this agent, and those that it has open to others.
	MaxConns int
	// MaxTickets bounds the tickets that are given out and not ended, and PeerTickets those of one peer.
	MaxTickets, PeerTickets int
	// MaxSize bounds one transfer, in bytes.
	MaxSize int64
	// TicketLife is how long a ticket may wait for its first use. Longer: slower senders; what they do not use is
	// blocked for that time.
	TicketLife time.Duration
	// Keep is how long a receiver keeps what has arrived of a transfer that nobody continues.
	Keep time.Duration
	// Idle is how long a connection stays open between transfers.
	Idle time.Duration
	// Silence is how long sent bytes may stay without the other host's acknowledgement until the connection counts as
	// cut, and how long connecting may take. Shorter: sooner away from a dead path, more false alarms under congestion.
	Silence time.Duration
	// Stall is how long nothing at all may move before the sender gives the transfer up, or the receiver a connection.
	Stall time.Duration
}

const (
	// MaxLegs bounds the connections that carry one transfer at once.
	MaxLegs = 16
	// MaxChunks bounds the chunks of a transfer: a receiver keeps 5 bytes for each.
	MaxChunks = 1 << 18

	minChunk = 4 << 10
	maxChunk = 64 << 20
	// maxTries is how often one chunk is sent that arrives damaged.
	maxTries = 4
	// handshakeTime is how long a connection may take to say who it is.
	handshakeTime = 5 * time.Second
	minTime       = 10 * time.Millisecond
)

// Defaults suit one data centre: chunks of 1 MiB stay in a processor's cache from the socket to the sink.
func Defaults() Config {
	return Config{Listen: "127.0.0.1:0", Chunk: 1 << 20, Unsent: 1 << 20, MaxTransfers: 64, MaxConns: 1024, MaxTickets: 1024,
		PeerTickets: 256, MaxSize: 256 << 30, TicketLife: 30 * time.Second, Keep: 2 * time.Minute, Idle: 5 * time.Minute,
		Silence: 10 * time.Second, Stall: 30 * time.Second}
}

// Validate reports the first thing that is wrong.
func (c *Config) Validate() error {
	if c.Listen != "" {
		if _, _, err := net.SplitHostPort(c.Listen); err != nil {
			return fmt.Errorf("transfer: listen address %q: give host:port: %w", c.Listen, err)
		}
	}
	if c.Dir != "" {
		if fi, err := os.Stat(c.Dir); err != nil {
			return fmt.Errorf("transfer: the directory for files: %w", err)
		} else if !fi.IsDir() {
			return fmt.Errorf("transfer: %q is no directory", c.Dir)
		}
	}
	if c.Chunk < minChunk || c.Chunk > maxChunk {
		return fmt.Errorf("transfer: chunk of %d bytes; give %d to %d", c.Chunk, minChunk, maxChunk)
	}
	if c.Unsent < minChunk || c.Unsent > 1<<30 {
		return fmt.Errorf("transfer: unsent of %d bytes; give %d to %d", c.Unsent, minChunk, 1<<30)
	}
	for _, f := range []struct {
		name string
		v    int
	}{{"max transfers", c.MaxTransfers}, {"max conns", c.MaxConns}, {"max tickets", c.MaxTickets}, {"peer tickets", c.PeerTickets}} {
		if f.v < 1 || f.v > 1<<20 {
			return fmt.Errorf("transfer: %s is %d; give 1 to %d", f.name, f.v, 1<<20)
		}
	}
	if c.MaxSize < 1 || c.MaxSize > 1<<50 {
		return fmt.Errorf("transfer: max size of %d bytes; give 1 to %d", c.MaxSize, int64(1)<<50)
	}
	for _, f := range []struct {
		name string
		v    time.Duration
	}{{"ticket life", c.TicketLife}, {"keep", c.Keep}, {"idle", c.Idle}, {"silence", c.Silence}, {"stall", c.Stall}} {
		if f.v < minTime {
			return fmt.Errorf("transfer: %s is %v; give %v or more", f.name, f.v, minTime)
		}
	}
	return nil
}
