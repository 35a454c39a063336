// Package house holds no code: its tests keep the rules of this repository that a compiler does not. The decision cores
// stay pure, imports point downwards, packages say what they are for, tests do not sleep, files stay readable, and every
// dependency has a reason in CONTRIBUTING.md. A rule that must give way somewhere has its exceptions listed beside it,
// each with its reason.
package house
