// Package gateway is the OpenAI-compatible front of an agent. It reads a client's request once, has the node decide which
// peer serves it, and brings the answer back, from the own engine or over one hop. It also serves the hops of other
// peers.
//
// It decides nothing itself: not where a request goes, nor when the own engine is too busy. It rewrites nothing either: a
// body goes on byte for byte, except for the model's name where the client used an alias, and the cache_salt where
// tenants are kept apart. It holds no state beyond a request but counters and free memory. Its main type is Gateway;
// Shoal is what it needs of the agent.
//
// Invariants:
//   - Until the first byte of the body is due to the client nothing of an attempt can be seen, and another may follow: at
//     most node.MaxTries other peers, then the own engine. After it the answer is brought to its end, or visibly is not:
//     an event stream ends in an error event, anything else in a cut connection (see answer).
//   - A forwarded request is never forwarded again: ServeHop knows no Route.
//   - Every Ticket is settled and every Serving ended exactly once, since each lives in one function (call.forward,
//     Gateway.admitted) that gives it back when it returns, however it does.
//   - The end of a client's request ends what it has caused: the context goes to the queue, the engine and the hop.
//   - What clients are told of failures are our own words, without an address.
//   - Header fields X-Shoal-… come from the gateway alone.
//
// What fails before the first byte is classified by who did it (see cause), in the manner of Caddy's reverse proxy: the
// failure's kind decides whether another peer is tried, whether the engine is probed, and what the peer is blamed for.
package gateway
