package replica

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"shoal/internal/peer"
	"shoal/internal/prefix"
)

// Digests are sums modulo 2^64 of mixed numbers, so that adding and removing an element costs one addition, in any order.
// They find differences that faults and losses make, not those that an enemy makes: peers are trusted. They are part of
// the protocol, since peers compare them.

// mix spreads the bits of x over the whole word (the finaliser of SplitMix64), 0 not to itself.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// bucketOf gives an element's bucket and what it adds to that bucket's sum.
func bucketOf(h prefix.Hash) (bucket uint8, m uint64) {
	m = mix(uint64(h))
	return uint8(m >> 56), m
}

// tag is what stands for the section's name in digests.
func (s Section) tag() uint64 {
	b := make([]byte, 0, 64)
	b = append(b, byte(s.Kind))
	b = binary.LittleEndian.AppendUint32(b, s.BlockSize)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s.Model)))
	b = append(b, s.Model...)
	b = append(b, s.Tokeniser...)
	return xxh3.Hash(b)
}

func valueDigest(tag, incarnation, version uint64) uint64 {
	return mix(tag ^ mix(incarnation^mix(version)))
}

func setDigest(tag uint64, sums *[Buckets]uint64) uint64 {
	var sum uint64
	for _, s := range sums {
		sum += s
	}
	return mix(tag ^ mix(sum))
}

// finish keeps 0 for "no document".
func finishDigest(sum uint64) uint64 {
	if sum == 0 {
		return 1
	}
	return sum
}

// digest is the digest of what the document holds now.
func (doc *document) digest() uint64 {
	if doc.digested == 0 {
		var sum uint64
		for _, s := range doc.sections {
			if s.sums != nil {
				sum += setDigest(s.tag, s.sums)
			} else {
				sum += valueDigest(s.tag, doc.stamp.Incarnation, s.value.Version)
			}
		}
		doc.digested = finishDigest(sum)
	}
	return doc.digested
}

// suspect reports that what is held is not what the owner says it should be.
func (doc *document) suspect() bool { return doc.digest() != doc.declared }

// Digest is the digest of a document's content, 0 where it is unknown.
func (d *Docs) Digest(owner peer.ID) uint64 {
	if doc := d.docs[owner]; doc != nil && doc.stamp.Version > 0 {
		return doc.digest()
	}
	return 0
}

// DigestTree gives the sums of a set section's buckets; false where there is no such section.
func (d *Docs) DigestTree(owner peer.ID, s Section) ([Buckets]uint64, bool) {
	if doc := d.docs[owner]; doc != nil {
		if sec := doc.section(s); sec != nil && sec.sums != nil {
			return *sec.sums, true
		}
	}
	return [Buckets]uint64{}, false
}

// trees gives the digest trees of all set sections, as copies.
func (doc *document) trees() []Tree {
	var t []Tree
	for _, s := range doc.sections {
		if s.sums != nil {
			sums := *s.sums
			t = append(t, Tree{Section: s.id, Sums: &sums})
		}
	}
	return t
}
