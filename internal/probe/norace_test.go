//go:build !race

package probe

// checks is how many cases a property test runs, where the command line does not say; networks is how many networks are
// made up.
const (
	checks   = "10000"
	networks = 1000
)
