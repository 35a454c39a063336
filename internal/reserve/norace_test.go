//go:build !race

package reserve

// checks is how many cases a property test runs, where the command line does not say.
const checks = "4000"
