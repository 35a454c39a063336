// Package transfer moves the bytes of KV caches between agents over TCP: fast, in bounded memory, on the path that the
// caller names by source ports, and past cut connections.
//
// A transfer is cut into chunks of one size. Each crosses on one connection with its CRC32C, and is acknowledged when it
// has been written. Several connections may carry one transfer, each with a source port of its own, so that a fabric's
// hash takes each over another path; before every chunk a [Steer] is asked whether the stripe goes on where it is. When a
// connection breaks, what was not acknowledged goes over the next one. At the end both sides compare the CRC32C of
// everything, combined from the chunks', and only then does the [Sink] keep anything.
//
// Nobody writes without a [Ticket] of the receiving agent: good for one transfer from one peer, of one size, for a short
// time. It reaches the sender by another, authenticated way; on the connections of this package only proofs of it are
// seen (HMAC-SHA256 over the receiver's nonce). The bytes themselves go in clear and a CRC is no signature: the network
// that carries KV caches is trusted with their contents, not with the right to write.
//
// What holds: a sink sees only bytes whose checksum was right, each chunk once, none outside its size. It is committed
// after all of them, or aborted; a sender that dies leaves what has arrived for [Config.Keep], so that a new ticket for
// the same file goes on with it. A receiver that dies takes what has arrived with it: at its next start [New] removes what
// is left in its directory, and the transfer begins anew. Memory is a few chunks a connection, whatever the size.
//
// The package knows no hash, no reservation and no peer but by name: which ports lead where, and when to move, is said
// to it. [Mover] is both sides of it.
package transfer
