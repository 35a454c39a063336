package replica

// Stamp orders the versions of one peer's document: first by the start of its agent, then by version.
type Stamp struct {
	Incarnation, Version uint64
}

// Less reports whether s is older than t.
func (s Stamp) Less(t Stamp) bool {
	return s.Incarnation < t.Incarnation || s.Incarnation == t.Incarnation && s.Version < t.Version
}
