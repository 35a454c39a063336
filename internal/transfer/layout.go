package transfer

// layout is how a transfer is cut: chunks of one size, but for the last.
type layout struct {
	size  int64
	chunk int64
}

func (l layout) count() int { return int((l.size + l.chunk - 1) / l.chunk) }

// extent is where chunk i lies.
func (l layout) extent(i int) (off int64, n int) {
	off = int64(i) * l.chunk
	return off, int(min(l.chunk, l.size-off))
}

// fits says whether the transfer is within what both sides keep account of.
func (l layout) fits() bool {
	return l.size >= 0 && l.chunk >= minChunk && l.chunk <= maxChunk && l.size <= l.chunk*MaxChunks
}
