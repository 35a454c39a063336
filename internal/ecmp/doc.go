// Package ecmp is what a host knows of the network's equal-cost paths: how switches hash a flow's 5-tuple, which way that
// sends it through the fabric, and so which source ports lead over which path (the port map M(p_k) of the ARK paper).
//
// It decides nothing: which path a transfer takes is the business of package reserve. It sends nothing either: maps that
// are learned on a real network are filled in by package probe, by PortMap.Add, FitLinear and FitModel.
//
// Main types: Model (a hash), Selection (from hash to next hop), Fabric (switches, links and hosts), Route (the choices
// between two hosts) and PortMap. Invariants:
//   - Everything follows from the arguments; two peers with one configuration name links alike and number paths alike.
//   - A link's LinkID is a hash of its name, so that peers that learned links apart agree without numbering them.
//   - The fast ways (Prepared.At and Fill, Route.Map, Route.Ports) give what Model.Hash, Selection.Pick and Route.PathOf give.
//   - A path is the links between switches. A host's own link to its leaf is not part of it, since every path of the
//     host has it: Host.Capacity says what it carries.
//   - Sizes are limited (MaxSwitches, MaxLinks, MaxHosts, MaxPaths, MaxPathLinks), and a configuration that is wrong is
//     an error that names the field.
//
// Sources. ARK: Lin, Hsu, Ho, Saeed, "Avoiding Routing Collisions for KV Cache Transfer in Disaggregated LLM Inference",
// NIAC 2026. Linearity of CRC and XOR hashes: RePaC, Zhang et al., "Hashing Linearity Enables Relative Path Control in
// Data Centers", USENIX ATC 2021. MurmurHash3_x86_32 is what the ns-3 family of simulators hashes with. What Linux does is
// read from its sources and tried on a kernel; linux.go says where.
package ecmp
