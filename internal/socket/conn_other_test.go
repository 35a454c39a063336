//go:build !linux

package socket

const linux = false
