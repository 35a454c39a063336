package ecmp

import "github.com/zeebo/xxh3"

// LinkID names a link among peers: the low 32 bits of XXH3 of its name. 0 is a link like others.
type LinkID uint32

// NameLink is the ID of the link of this name.
func NameLink(name string) LinkID { return LinkID(xxh3.HashString(name)) }

// Link is one direction of a cable between two switches, or of one member of a bond.
type Link struct {
	ID       LinkID `json:"id"`
	Name     string `json:"name"`     // "leaf1->spine2"; a bond's members are "leaf1->spine2#1" and so on
	Capacity int64  `json:"capacity"` // bit/s; 0 is unknown
}

// Path is one way between two hosts' leaves. It is shared: do not change what it holds.
type Path struct {
	// Links are in the order in which packets cross them. None where both hosts hang on one leaf. The hosts' own links are not
	// among them: every path has those.
	Links []LinkID `json:"links"`
	// Via are the switches, from the source's leaf to the destination's, for people.
	Via []string `json:"via"`
}
