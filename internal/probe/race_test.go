//go:build race

package probe

// The race detector makes everything some ten times slower. What the property tests try has no goroutines.
const (
	checks   = "1000"
	networks = 100
)
