package ecmp

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"
	"strconv"
)

// SelectionKind is how a switch gets from a hash to one of n equal-cost next hops.
type SelectionKind uint8

const (
	Modulo    SelectionKind = iota // hash mod n
	HashRange                      // the hashes are cut into n ranges, in the order of the next hops; Linux: hash-threshold
	Resilient                      // hash mod the number of buckets; a bucket names the next hop
	selectionKinds
)

var selectionNames = [selectionKinds]string{"modulo", "range", "resilient"}

func (k SelectionKind) String() string {
	if k >= selectionKinds {
		return "selection " + strconv.Itoa(int(k))
	}
	return selectionNames[k]
}

// MarshalText gives the name in a configuration.
func (k SelectionKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the name in a configuration.
func (k *SelectionKind) UnmarshalText(b []byte) error {
	i := slices.Index(selectionNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("ecmp: no selection is called %q; there are modulo, range and resilient", b)
	}
	*k = SelectionKind(i)
	return nil
}

const (
	// MaxWeight bounds one weight, as Linux does.
	MaxWeight = 65535
	// MaxBuckets bounds the buckets of a resilient selection.
	MaxBuckets = 65535
)

// Selection is how a switch chooses among equal-cost next hops. The zero value is modulo with equal weights.
type Selection struct {
	Kind SelectionKind `yaml:"kind,omitempty" json:"kind,omitempty"`
	// Weights are those of the next hops, in their order; none: all are equal. With modulo the hash is taken modulo their
	// sum; with range a next hop's part of the hashes is in proportion.
	Weights []int `yaml:"weights,omitempty" json:"weights,omitempty"`
	// Buckets are next hops, for resilient. Each is below the number of next hops.
	Buckets []uint16 `yaml:"buckets,omitempty" json:"buckets,omitempty"`
	// Bits is the width of the hash that range cuts: 16, 31 or 32. 0 is the width of the switch's model in a fabric, and
	// 32 where there is no model.
	Bits uint8 `yaml:"bits,omitempty" json:"bits,omitempty"`
}

// Validate says what is wrong with the selection, naming the field.
func (s *Selection) Validate() error {
	if field, wrong := s.check(); wrong != "" {
		return fmt.Errorf("ecmp: selection.%s: %s", field, wrong)
	}
	return nil
}

func (s *Selection) check() (field, wrong string) {
	switch {
	case s.Kind >= selectionKinds:
		return "kind", fmt.Sprintf("%d is none; there are modulo, range and resilient", s.Kind)
	case len(s.Weights) > MaxPaths:
		return "weights", fmt.Sprintf("%d are more than %d", len(s.Weights), MaxPaths)
	case s.Kind == Resilient && len(s.Weights) > 0:
		return "weights", "resilient has none: a next hop of more weight has more buckets"
	case s.Kind == Resilient && (len(s.Buckets) == 0 || len(s.Buckets) > MaxBuckets):
		return "buckets", fmt.Sprintf("there are %d; give 1 to %d next hops", len(s.Buckets), MaxBuckets)
	case s.Kind != Resilient && len(s.Buckets) > 0:
		return "buckets", fmt.Sprintf("%s has none; leave them out, or take resilient", s.Kind)
	case s.Bits != 0 && s.Bits != 16 && s.Bits != 31 && s.Bits != 32:
		return "bits", fmt.Sprintf("%d is the width of no hash here; there are 16, 31 and 32", s.Bits)
	}
	for i, w := range s.Weights {
		if w < 1 || w > MaxWeight {
			return fmt.Sprintf("weights[%d]", i), fmt.Sprintf("%d is not from 1 to %d", w, MaxWeight)
		}
	}
	return "", ""
}

// fits says what stands against choosing among n next hops.
func (s *Selection) fits(n int) (field, wrong string) {
	if len(s.Weights) > 0 && len(s.Weights) != n {
		return "weights", fmt.Sprintf("there are %d, and %d next hops", len(s.Weights), n)
	}
	for i, b := range s.Buckets {
		if int(b) >= n {
			return fmt.Sprintf("buckets[%d]", i), fmt.Sprintf("next hop %d is not one of 0 to %d", b, n-1)
		}
	}
	return "", ""
}

// width is the number of hashes that HashRange cuts.
func (s *Selection) width() uint64 {
	if s.Bits == 0 {
		return 1 << 32
	}
	return 1 << s.Bits
}

// weight is that of next hop i.
func (s *Selection) weight(i int) uint64 {
	if i < len(s.Weights) {
		return uint64(s.Weights[i])
	}
	return 1
}

// Pick is the next hop for a hash, of n. It is the rule itself, step by step; a fabric's routes use a chooser, which is fast.
// s and n fit each other (Validate; as many weights as next hops, or none; buckets below n), and n is at least 1.
func (s *Selection) Pick(hash uint32, n int) int {
	if s.Kind == Resilient {
		return int(s.Buckets[hash%uint32(len(s.Buckets))])
	}
	var total, sum uint64
	for i := range n {
		total += s.weight(i)
	}
	for i := range n {
		sum += s.weight(i)
		limit := sum
		h := uint64(hash) % total
		if s.Kind == HashRange {
			// As Linux rounds: fib_rebalance, and nh_hthr_group_rebalance for next hops that are objects. The bound is inclusive
			// there, and one less.
			limit = (sum*s.width() + total/2) / total
			h = uint64(hash)
		}
		if h < limit {
			return i
		}
	}
	return n - 1 // a hash wider than Bits
}

// chooser is a Selection among n next hops, made fast. What it does with a hash:
//
//	x = hash >> shift & mask
//	x = x mod total          unless total is 0
//	x = table[x]             if there is a table, else
//	x = how many limits x has reached, if there are limits
type chooser struct {
	shift  uint8
	mask   uint32
	total  uint32
	magic  uint64 // 2^64 / total, rounded up
	table  []uint16
	limits []uint32
}

func newChooser(s *Selection, n int) chooser {
	if n == 1 {
		return chooser{} // mask 0
	}
	c := chooser{mask: math.MaxUint32}
	modulo := func(total int) {
		if total&(total-1) == 0 {
			c.mask = uint32(total - 1)
		} else {
			c.total, c.magic = uint32(total), math.MaxUint64/uint64(total)+1
		}
	}
	var total uint64
	for i := range n {
		total += s.weight(i)
	}
	equal := len(s.Weights) == 0
	switch {
	case s.Kind == Resilient:
		modulo(len(s.Buckets))
		c.table = s.Buckets
	case s.Kind == HashRange && equal && n&(n-1) == 0 && s.width() >= uint64(n):
		c.shift = uint8(bits.TrailingZeros64(s.width()) - bits.TrailingZeros(uint(n)))
		c.mask = uint32(n - 1)
	case s.Kind == Modulo:
		modulo(int(total))
	}
	if s.Kind == HashRange && c.shift == 0 || s.Kind == Modulo && !equal {
		sum := uint64(0)
		for i := range n - 1 {
			sum += s.weight(i)
			limit := sum
			if s.Kind == HashRange {
				limit = (sum*s.width() + total/2) / total
			}
			c.limits = append(c.limits, uint32(limit))
		}
	}
	return c
}

// manyLimits is from where on bisection is faster than looking at all.
const manyLimits = 8

func (c *chooser) pick(hash uint32) int {
	x := hash >> c.shift & c.mask
	if c.total != 0 {
		x = c.mod(x)
	}
	switch {
	case c.table != nil:
		return int(c.table[x])
	case c.limits == nil:
		return int(x)
	case len(c.limits) > manyLimits:
		return sort.Search(len(c.limits), func(i int) bool { return x < c.limits[i] })
	}
	return reached(c.limits, x)
}

// mod is x mod total, by two multiplications (Lemire, Kaser, Kurz 2019).
func (c *chooser) mod(x uint32) uint32 {
	hi, _ := bits.Mul64(c.magic*uint64(x), uint64(c.total))
	return uint32(hi)
}

// reached counts the limits that are at most x, without branches.
func reached(limits []uint32, x uint32) int {
	n := uint64(0)
	for _, l := range limits {
		n += (uint64(l) - 1 - uint64(x)) >> 63
	}
	return int(n)
}

// each picks for every hash, into out.
func (c *chooser) each(hashes []uint32, out []uint16) {
	out = out[:len(hashes)]
	switch {
	case c.table == nil && c.limits == nil && c.total == 0:
		shift, mask := c.shift&31, c.mask
		for i, h := range hashes {
			out[i] = uint16(h >> shift & mask)
		}
	case c.table == nil && c.limits == nil:
		for i, h := range hashes {
			out[i] = uint16(c.mod(h & c.mask))
		}
	default:
		for i, h := range hashes {
			out[i] = uint16(c.pick(h))
		}
	}
}

// isBits says where the choice is a field of the hash's bits.
func (c *chooser) isBits() bool {
	return c.table == nil && c.limits == nil && c.total == 0
}
