package prefix

// Long prompts have many blocks: 100 kB are 390, and what every peer keeps and hears of each of them adds up to more than
// the forwarding of the prompt itself. Deep in a prompt 256 bytes more or less of a match change no decision. So all peers
// thin chains by one fixed rule, and index, trees and documents hold only the blocks that it keeps: all of the first 64
// (16 kB), every 4th of those up to the 256th (64 kB), and every 16th beyond. A match is never overstated; it is
// understated by at most 3 blocks in the second part and 15 in the third, 6 % of it. docs/decisions/0003-thinning.md has
// what that saves.
const (
	thinAll, thinFourth = 64, 256
	thinSteps           = 4
	thinDeepSteps       = 16
)

// MaxThinned is how many blocks Thin keeps of a chain of MaxBlocks.
const MaxThinned = thinAll + (thinFourth-thinAll)/thinSteps + (MaxBlocks-thinFourth)/thinDeepSteps

// Thin appends the blocks of a whole chain, as Chain.Blocks gives it, that routing keeps.
func Thin(dst, chain []Hash) []Hash {
	dst = append(dst, chain[:min(len(chain), thinAll)]...)
	for i := thinAll + thinSteps - 1; i < min(len(chain), thinFourth); i += thinSteps {
		dst = append(dst, chain[i])
	}
	for i := thinFourth + thinDeepSteps - 1; i < len(chain); i += thinDeepSteps {
		dst = append(dst, chain[i])
	}
	return dst
}

// Unthinned is how many blocks of the whole chain the first n thinned ones stand for.
func Unthinned(n int) int {
	const second = thinAll + (thinFourth-thinAll)/thinSteps
	switch {
	case n <= thinAll:
		return max(n, 0)
	case n <= second:
		return thinAll + (n-thinAll)*thinSteps
	}
	return thinFourth + (n-second)*thinDeepSteps
}

// Thinned is how many thinned blocks the first n of the whole chain make, rounding down: the inverse of Unthinned.
func Thinned(n int) int {
	const second = thinAll + (thinFourth-thinAll)/thinSteps
	switch {
	case n <= thinAll:
		return max(n, 0)
	case n <= thinFourth:
		return thinAll + (n-thinAll)/thinSteps
	}
	return second + (n-thinFourth)/thinDeepSteps
}
