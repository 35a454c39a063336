//go:build race

package reserve

// The race detector makes everything some ten times slower, and finds nothing in a package without goroutines that fewer
// cases would not.
const checks = "250"
