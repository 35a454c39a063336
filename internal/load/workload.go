package load

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/zeebo/xxh3"
)

// Workload is a sequence of requests. Request is a pure function of its index (and of the seed that the workload was
// made with), so that any number of clients may ask for any of them in any order and the sequence is still the same.
type Workload interface {
	// Describe says in one line what the workload is, its parameters included.
	Describe() string
	// Len is the number of requests there are; Endless where there is no end.
	Len() int
	// Request returns request i, 0 <= i < Len.
	Request(i int) Request
	// Timed reports whether the requests say themselves when they arrive (Request.At).
	Timed() bool
}

// Endless is the length of a workload without an end.
const Endless = -1

// Request is one prompt. The strings belong to the caller.
type Request struct {
	Group  string        // what shares a prefix: the subject; empty where the workload does not tell
	At     time.Duration // arrival since the start of the run, where the workload is Timed
	System string        // system message; empty: none
	User   string        // user message
	Output int           // tokens of output that the workload asks for; 0: as the run says
}

// DigestedRequests bounds how many requests a digest covers: enough to tell two workloads apart, within a second.
const DigestedRequests = 1000

// Digest identifies the first n requests of w (at most DigestedRequests): the same seed and parameters give the same
// digest on every machine.
func Digest(w Workload, n int) string {
	h := xxh3.New()
	if l := w.Len(); l >= 0 {
		n = min(n, l)
	}
	n = min(n, DigestedRequests)
	var b []byte
	for i := range n {
		r := w.Request(i)
		b = b[:0]
		for _, s := range []string{r.Group, r.System, r.User} {
			b = binary.AppendUvarint(b, uint64(len(s)))
			b = append(b, s...)
		}
		b = binary.AppendVarint(b, int64(r.At))
		b = binary.AppendVarint(b, int64(r.Output))
		h.Write(b)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// source is the random stream called name of one seed, at position i. Streams with different names or positions have
// nothing to do with each other, so that a change of one leaves the others as they were.
func source(seed uint64, name string, i uint64) *rand.Rand {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], i)
	stream := xxh3.HashStringSeed(name, seed)
	return rand.New(rand.NewPCG(stream, xxh3.HashSeed(b[:], stream)))
}
