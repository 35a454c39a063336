package sim

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A transmission is the smallest number of picoseconds in which the bytes fit.
func TestTransmissionRoundsUp(t *testing.T) {
	for _, c := range []struct {
		bytes, rate int64
		want        Time
	}{
		{0, 1, 0}, {1036, 100_000_000_000, 82_880}, {48, 100_000_000_000, 3_840}, {1, 3, 2_666_666_666_667}, {1500, 100_000_000, 120 * Microsecond},
	} {
		if got := Transmission(c.bytes, c.rate); got != c.want {
			t.Errorf("%d bytes at %d bit/s: %d ps, want %d", c.bytes, c.rate, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Int64Range(1, 1<<50).Draw(t, "rate")
		bytes := rapid.Int64Range(0, min(1<<59, rate)).Draw(t, "bytes") // up to 8 s
		want := new(big.Int).Mul(big.NewInt(bytes), big.NewInt(8*int64(Second)))
		want.Add(want, big.NewInt(rate-1)).Div(want, big.NewInt(rate))
		if got := Transmission(bytes, rate); !want.IsInt64() || int64(got) != want.Int64() {
			t.Fatalf("%d bytes at %d bit/s: %d ps, want %v", bytes, rate, got, want)
		}
	})
}

func TestTimesAndDurations(t *testing.T) {
	if Of(time.Second) != Second || Of(3*time.Nanosecond) != 3*Nanosecond || (2*Nanosecond-1).Duration() != time.Nanosecond || (1500*Millisecond).Seconds() != 1.5 {
		t.Error("units are wrong")
	}
	if s := (1500 * Microsecond).String(); s != "1.5ms" {
		t.Errorf("1500 us are %q", s)
	}
	if s := Never.String(); s != "never" {
		t.Errorf("Never is %q", s)
	}
}

func draws(seed uint64, name string, n int) (v []uint64) {
	for r := Stream(seed, name); len(v) < n; {
		v = append(v, r.Uint64())
	}
	return v
}

// What a stream gives depends on its seed and name, and on nothing else.
func TestStreamsAreIndependent(t *testing.T) {
	a, b := draws(1, "a", 64), draws(1, "b", 64)
	ra, rb := Stream(1, "a"), Stream(1, "b")
	for i := range a {
		for range i % 3 {
			rb.Uint64() // what one draws changes nothing for the other
		}
		if ra.Uint64() != a[i] {
			t.Fatalf("draw %d of stream a depends on what stream b does", i)
		}
	}
	seen := map[uint64]string{}
	note := func(name string, values []uint64) {
		for _, v := range values {
			if seen[v] != "" {
				t.Errorf("streams %s and %s have %x in common", seen[v], name, v)
			}
			seen[v] = name
		}
	}
	note("1 a", a)
	note("1 b", b)
	note("2 a", draws(2, "a", 64))
	note("0 a", draws(0, "a", 64))
	note("1", draws(1, "", 64))
	// Bits of two streams agree half of the time.
	same := 0
	x, y := draws(7, "x", 1000), draws(7, "y", 1000)
	for i := range x {
		if x[i]>>63 == y[i]>>63 {
			same++
		}
	}
	if same < 430 || same > 570 {
		t.Errorf("%d of 1000 first bits are the same", same)
	}
}

// A digest is of numbers in their order, however they are handed over.
func TestDigestIsOfTheSequence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Int64(), 1, 20).Draw(t, "values")
		var whole, parts Digest
		whole.Add(v...)
		cut := rapid.IntRange(0, len(v)).Draw(t, "cut")
		parts.Add(v[:cut]...)
		parts.Add(v[cut:]...)
		if whole != parts {
			t.Fatal("it depends on how the numbers were handed over")
		}
		i, j := rapid.IntRange(0, len(v)-1).Draw(t, "i"), rapid.IntRange(0, len(v)-1).Draw(t, "j")
		if v[i] == v[j] {
			return
		}
		v[i], v[j] = v[j], v[i]
		var swapped Digest
		if swapped.Add(v...); swapped == whole {
			t.Fatalf("it does not notice that %d and %d have changed places", i, j)
		}
	})
	var zeros Digest
	for n := range 3 { // no number of zeros is nothing
		before := zeros
		if zeros.Add(0); zeros == before {
			t.Errorf("a zero after %d of them makes no difference", n)
		}
	}
	if s := Digest(0xab).String(); s != "00000000000000ab" {
		t.Errorf("it reads %q", s)
	}
}
