package probe

import "time"

// bucket is a token bucket: so many probes a second in the long run, and no more than burst of them at once. Its owner
// locks it, and gives it the time.
type bucket struct {
	every time.Duration // between two tokens
	burst int
	next  time.Duration // when the next token is due; in the past where some have collected
}

func newBucket(perSecond, burst int) bucket {
	return bucket{every: time.Second / time.Duration(perSecond), burst: burst, next: -time.Hour} // full
}

// take takes a token, and says how long its taker has to wait first.
func (b *bucket) take(now time.Duration) time.Duration {
	due := max(b.next, now-time.Duration(b.burst-1)*b.every)
	b.next = due + b.every
	return max(due-now, 0)
}

// minRate is what pace does not go below, in probes a second: Linux as it comes answers one a second.
const minRate = 2

// pace is how fast one target is asked. Routers answer so many probes a second and drop the rest without a word. Where
// fewer than half are answered the rate is halved; where nearly all are, it rises by an eighth of the greatest.
type pace struct {
	bucket bucket
	rate   int
	most   int
}

func newPace(most int) *pace {
	return &pace{bucket: newBucket(most, paceBurst), rate: most, most: most}
}

// paceBurst is how many probes of one target may leave at once.
const paceBurst = 8

// heard takes in how a batch went: of the probes whose routers have answered at some time, how many were answered.
func (p *pace) heard(asked, answered int) {
	switch {
	case asked < 4: // too few to tell a limit from a lost packet
	case answered*2 < asked:
		p.rate = max(p.rate/2, min(minRate, p.most))
	case answered*10 >= asked*9:
		p.rate = min(p.rate+max(p.most/8, 1), p.most)
	}
	p.bucket.every = time.Second / time.Duration(p.rate)
}
