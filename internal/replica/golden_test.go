package replica

import "testing"

// Peers compare digests, so what they are made of is part of the protocol.
func TestDigestsDoNotChangeWithinAVersion(t *testing.T) {
	d := New("a", born, newMemory(), Limits{})
	must(t, d.Set(info, "any content"))
	must(t, d.Change(Section{Kind: KindTextBlocks, Model: "m", Tokeniser: "t", BlockSize: 256}, add(0, 1, 2)))
	d.Commit()
	if got, want := d.Digest("a"), uint64(0x2eda573c9fcf6e0e); got != want {
		t.Errorf("digest %#x, want %#x", got, want)
	}
	b, m := bucketOf(1) // the first number of SplitMix64 from seed 1
	if got, want := [2]uint64{uint64(b), m}, [2]uint64{0x91, 0x910a2dec89025cc1}; got != want {
		t.Errorf("bucket and mixed hash of 1: %#x, want %#x", got, want)
	}
}
