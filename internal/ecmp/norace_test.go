//go:build !race

package ecmp

const (
	checks = "10000"
	raced  = false
)
