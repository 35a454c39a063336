package replica

import (
	"fmt"
	"time"
)

// Limits bounds what a Docs holds and sends. Zero fields take their defaults; see Defaults.
type Limits struct {
	// Documents bounds the documents known, dead ones included; at most MaxRows. Beyond it the document that has been
	// dead longest goes, and where none is dead a new one is refused.
	Documents int
	// Dead bounds the documents kept of owners that are gone or have never been seen; the one dead longest goes first.
	// More of them lets more agents find their own document again after a common outage, and costs index memory.
	Dead int
	// KeepDead is how long such a document is kept. Longer helps agents that come back late.
	KeepDead time.Duration
	// Elements bounds one set section; at most MaxElements. A document with a larger section is dropped.
	Elements int
	// TotalElements bounds all set sections of all documents together: about 40 bytes of index each.
	TotalElements int
	// Log bounds the changes kept of one document for sending on, in operations; every logged version counts as
	// versionCost operations more. Longer logs spare complete copies to peers that were away, at 16 bytes an operation.
	Log int
	// TotalLog bounds the logs of all documents together. Beyond it the longest log is halved.
	TotalLog int
	// Staged bounds the elements of incomplete copies kept until their last part arrives. A document larger than that, by
	// more than one part, never arrives.
	Staged int
	// KeepStaged is how long an incomplete copy waits for its next part.
	KeepStaged time.Duration
	// Copies bounds the elements of complete copies kept ready for sending, so that many who ask need one scan.
	Copies int
	// Answer bounds the operations sent in one message, but one document is always sent whole. Lower spreads what a new
	// peer needs over more rounds and more peers.
	Answer int
	// AskAgain is for how long a complete copy asked of one peer is not asked of another.
	AskAgain time.Duration
	// Ahead is how far in the future, by the own clock, another peer's incarnation may lie.
	Ahead time.Duration
}

// versionCost is what one logged version counts besides its operations: a Delta, a Load and their slices take about 500
// bytes, an operation 16.
const versionCost = 32

// Defaults are the limits where the configuration says nothing.
func Defaults() Limits {
	return Limits{
		Documents: MaxRows, Dead: 256, KeepDead: 10 * time.Minute,
		Elements: 262144, TotalElements: 40 << 20,
		Log: MaxOps, TotalLog: 4 << 20,
		Staged: 2 * MaxElements, KeepStaged: 30 * time.Second, Copies: 1 << 20,
		Answer: 262144, AskAgain: time.Second, Ahead: 24 * time.Hour,
	}
}

// orDefault fills zero fields.
func (l Limits) orDefault() Limits {
	def := Defaults()
	for _, f := range []struct{ p, d *int }{
		{&l.Documents, &def.Documents}, {&l.Dead, &def.Dead}, {&l.Elements, &def.Elements}, {&l.TotalElements, &def.TotalElements},
		{&l.Log, &def.Log}, {&l.TotalLog, &def.TotalLog}, {&l.Staged, &def.Staged}, {&l.Copies, &def.Copies}, {&l.Answer, &def.Answer},
	} {
		if *f.p == 0 {
			*f.p = *f.d
		}
	}
	for _, f := range []struct{ p, d *time.Duration }{
		{&l.KeepDead, &def.KeepDead}, {&l.KeepStaged, &def.KeepStaged}, {&l.AskAgain, &def.AskAgain}, {&l.Ahead, &def.Ahead},
	} {
		if *f.p == 0 {
			*f.p = *f.d
		}
	}
	return l
}

// Validate reports the first field that cannot be, nil where there is none.
func (l Limits) Validate() error {
	l = l.orDefault()
	for _, f := range []struct {
		name        string
		v, min, max int
	}{
		{"Documents", l.Documents, 1, MaxRows}, {"Dead", l.Dead, 1, MaxRows}, {"Elements", l.Elements, 1, MaxElements},
		{"TotalElements", l.TotalElements, 1, 1 << 40}, {"Log", l.Log, 2 * versionCost, MaxOps}, {"TotalLog", l.TotalLog, 2 * versionCost, 1 << 40},
		{"Staged", l.Staged, 1, 1 << 40}, {"Copies", l.Copies, 1, 1 << 40}, {"Answer", l.Answer, 1, 1 << 40},
		{"KeepDead", int(l.KeepDead), 1, 1 << 60}, {"KeepStaged", int(l.KeepStaged), 1, 1 << 60}, {"AskAgain", int(l.AskAgain), 1, 1 << 60},
		{"Ahead", int(l.Ahead), 1, 1 << 60},
	} {
		if f.v < f.min || f.v > f.max {
			return fmt.Errorf("replica: limit %s is %d; give a value from %d to %d, or 0 for the default", f.name, f.v, f.min, f.max)
		}
	}
	return nil
}
