package prefix

import "testing"

func TestThinningUnderstatesAMatchByLittleAndNeverOverstatesIt(t *testing.T) {
	whole := make([]Hash, MaxBlocks)
	for i := range whole {
		whole[i] = Hash(i)
	}
	for n := 0; n <= MaxBlocks; n++ {
		thin := Thin(nil, whole[:n])
		if len(thin) != Thinned(n) {
			t.Fatalf("%d blocks make %d thinned ones, and Thinned says %d", n, len(thin), Thinned(n))
		}
		stands := Unthinned(len(thin))
		if stands > n || n > 0 && (n-stands)*100 > 6*n {
			t.Fatalf("%d blocks are taken for %d", n, stands)
		}
		if len(thin) > 0 && int(thin[len(thin)-1]) != stands-1 {
			t.Fatalf("the last of %d thinned blocks is block %d, and they are said to stand for %d", len(thin), thin[len(thin)-1], stands)
		}
	}
	if n := Thinned(MaxBlocks); n != MaxThinned {
		t.Fatalf("%d, and MaxThinned is %d", n, MaxThinned)
	}
}

// Two prompts agree in as many thinned blocks as their common prefix makes: thinning does not depend on what follows.
func TestThinningKeepsPrefixes(t *testing.T) {
	a, b := make([]Hash, 1000), make([]Hash, 700)
	for i := range a {
		a[i] = Hash(i)
	}
	for common := range 700 {
		for i := range b {
			b[i] = Hash(i)
			if i >= common {
				b[i] += 10_000
			}
		}
		ta, tb := Thin(nil, a), Thin(nil, b)
		n := 0
		for n < min(len(ta), len(tb)) && ta[n] == tb[n] {
			n++
		}
		if n != Thinned(common) {
			t.Fatalf("a common prefix of %d blocks agrees in %d thinned ones, not %d", common, n, Thinned(common))
		}
	}
}
