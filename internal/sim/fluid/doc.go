// Package fluid is the network of package fabric without packets: flows are fluids that share the links max-min fairly. A
// run of a thousand transfers takes milliseconds, which is what sweeps over policies and seeds need, and thousands of hosts
// are feasible; how far it is from the packets is measured by its tests. It decides nothing: which path a flow takes is
// told to Start and Move. The main type is Fluid; PooledSRPT is the bound that no choice of paths can be expected to pass.
//
// A link gives wire bytes of full packets at the rate at which the packet model sends them: transmission times rounded to
// whole nanoseconds, headers included. A flow ends when its last byte has left at its fair rate, and the constant time has
// passed that the last packet and its acknowledgement need on an empty path. So a flow that is alone ends when it does in
// the packet model.
//
// Left out: queues and what comes of them (marks, pauses, losses, the unfairness of a round robin over a few packets), the
// time in which a window or a rate adapts, and the bandwidth that acknowledgements take from data that goes the other way
// (4.6 % with packets of 1,000 bytes). A message takes the constant time of its path. A flow that always has bytes to send
// has no gaps, so that Flowlet is the same as First. What is under way when a link goes down arrives.
//
// Arithmetic is of integers: which link fills first is a comparison of quotients, ties are common (equal links, equal
// flows), and whole numbers tie on every machine in the same way, whatever its compiler fuses. They also make what is
// computed for a part of the network equal to the last bit to what it would be for the whole.
//
// Invariants, which Check looks at: bytes that were to be sent have left or are left; no link gives more than its rate;
// every flow that sends has a link that is full and on which no flow is faster, which is what max-min fair means.
//
// Source: Bertsekas and Gallager, "Data Networks" (1992), section 6.5.2, for max-min fairness and its computation by
// filling.
package fluid
