// Package probe learns on a real network which source port leads over which path, and keeps checking that it is still so.
//
// A probe is one packet with the 5-tuple of a transfer, and a TTL that lets it die at a router on the way. The router
// says so in an ICMP message that quotes the packet, so that the answers to TTL 1, 2, 3 are the path. For TCP it is a
// bare ACK whose sequence number is random: where a connection has that 5-tuple the answer's sequence is out of its
// window, and the kernel drops it. For UDP it is a datagram of 8 bytes. A probe never has a TTL that reaches the host
// (see hops.go). A UDP probe says nothing of TCP, because switches hash the protocol.
//
// It is not traceroute: it asks for a map, not for names, and asks no more than the map needs. It does not choose a
// path, and moves no transfer. It knows IPv4 only.
//
// It is not for a host that has several next hops of its own towards a target: the kernel chooses among them for these
// packets without looking at ports, so that the map would be that of one next hop.
//
// Main types: Prober (the sockets, Learn and Verify), Map (what was learned), Watcher (maps of many targets, kept
// true). Wire is the seam below. Invariants:
//   - No more probes leave than Config.Rate allows, over all targets; at most MaxOutstanding wait for an answer at once.
//   - A port of a Map was answered for, or follows from a fit or a model that was right for ports it had not been made
//     from.
//   - Whatever comes from the network is bounded, and is counted and dropped where it is not an answer to a probe; it
//     never panics.
//   - Where packets of one 5-tuple take different paths there is no map: ErrSprays, and the Watcher steps aside.
//
// When to stop follows the multipath detection algorithm (Augustin, Friedman, Teixeira 2007; Veitch et al. 2009);
// linear fits follow RePaC (Zhang et al., ATC 2021).
package probe
