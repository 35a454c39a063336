//go:build race

package ecmp

// Under the race detector everything takes ten times as long, and there is no goroutine here to find anything about.
const (
	checks = "1000"
	raced  = true
)
