// Package cluster is what connects a peer with the others of its shoal: who is there and how far away (gossip, by
// memberlist), one peer port that carries forwarded requests ("hops") and anti-entropy rounds, and small datagrams.
//
// It moves bytes and knows nothing of what they mean: documents, routing and requests are the Handler's. It is not a
// general RPC layer either: one request a connection at a time, no multiplexing, because that is what costs the least
// CPU a hop (docs/decisions/0002-hop-protocol.md has the measurement).
//
// Main type: Cluster. Invariants:
//   - Nothing listens beyond loopback without the shoal's key, unless Config.Insecure says so.
//   - Whatever comes from the network is bounded, and is refused and counted where it is wrong; it never panics.
//   - A Hop gives at most one answer. The connection of a hop that did not come to its End is never used again.
//   - A slow peer costs only those who talk to it: rounds with others, hops to others and membership go on.
//   - After Close nothing of the cluster runs any more, and the Handler is not called again.
//
// Membership follows SWIM with Lifeguard (Das et al. 2002, Dadgar et al. 2017) as hashicorp/memberlist implements it;
// anti-entropy is the push-pull of Demers et al. 1987, in three messages.
package cluster
