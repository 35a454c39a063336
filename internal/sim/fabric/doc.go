// Package fabric is a network of hosts and switches, packet by packet: leaf-spine or fat tree, with the queues, pauses,
// marks and congestion control of RDMA over converged Ethernet, as the ns-3 simulators of the HPCC family have them. It
// reproduces their completion times to the nanosecond, and is fast enough for runs of billions of packets.
//
// It decides nothing: which path a flow takes is told to Start and Move. Package fluid is the same Network without
// packets. The main types are Topology, the truth about links and hashes, and Packets.
//
// Invariants, which Check looks at: bytes that were sent have arrived, are under way, or were lost on a link that is
// down; packets of one flow do not overtake each other; with PFC nothing is lost in a full queue.
//
// Sources: Li et al., "HPCC: High Precision Congestion Control" (SIGCOMM 2019), for window and acknowledgements; Zhu et
// al., "Congestion Control for Large-Scale RDMA Deployments" (SIGCOMM 2015), for DCQCN; IEEE 802.1Qbb for PFC.
package fabric
