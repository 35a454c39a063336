package replica

import (
	"errors"
	"fmt"

	"shoal/internal/prefix"
)

func (s Section) validate() error {
	switch {
	case s.Kind == 0:
		return errors.New("replica: a section has kind 0")
	case len(s.Model) > MaxName || len(s.Tokeniser) > MaxName:
		return fmt.Errorf("replica: a section's model or tokeniser has more than %d bytes", MaxName)
	}
	return nil
}

// Validate reports what is wrong with a delta from elsewhere, nil where it may be applied. A nil delta is wrong.
func (d *Delta) Validate() error {
	if d == nil {
		return errors.New("replica: no delta")
	}
	if err := d.Owner.Validate(); err != nil {
		return fmt.Errorf("replica: owner of a delta: %w", err)
	}
	fail := func(format string, args ...any) error {
		return fmt.Errorf("replica: delta of %s, %d to %d: "+format, append([]any{d.Owner, d.From, d.To}, args...)...)
	}
	switch {
	case d.From >= d.To:
		return fail("it leads nowhere")
	case d.Part >= d.Parts || d.Parts > MaxParts:
		return fail("part %d of %d", d.Part, d.Parts)
	case !d.Complete() && (d.Parts != 1 || d.Base != 0):
		return fail("parts or a base, though it is not complete")
	case len(d.Values) > MaxValues:
		return fail("%d values; at most %d", len(d.Values), MaxValues)
	case len(d.Sets) > MaxSections:
		return fail("%d sets; at most %d", len(d.Sets), MaxSections)
	case d.OpCount() > MaxOps:
		return fail("%d operations; at most %d", d.OpCount(), MaxOps)
	}
	for i := range d.Values {
		v := &d.Values[i]
		switch {
		case v.Section.validate() != nil:
			return v.Section.validate()
		case i > 0 && d.Values[i-1].Section.Compare(v.Section) >= 0:
			return fail("values out of order")
		case v.Version == 0 || v.Version > d.To:
			return fail("value %v has version %d", v.Section, v.Version)
		case v.Content == nil && d.Complete():
			return fail("removal of %v in a complete copy", v.Section)
		case v.Content != nil && v.Section.Kind.IsSet():
			return fail("section %v is a set, and has a value", v.Section)
		}
	}
	for i := range d.Sets {
		s := &d.Sets[i]
		switch {
		case s.Section.validate() != nil:
			return s.Section.validate()
		case i > 0 && d.Sets[i-1].Section.Compare(s.Section) >= 0:
			return fail("sets out of order")
		case !s.Section.Kind.IsSet():
			return fail("section %v is a value, and has operations", s.Section)
		case s.Patch != nil && d.Base == 0:
			return fail("marks of a patch without a base")
		}
		if _, ok := d.findValue(s.Section); ok {
			return fail("section %v both removed and changed", s.Section)
		}
		if d.Complete() && !ascending(s) {
			return fail("elements of %v out of order, removed, or outside the patch", s.Section)
		}
	}
	return nil
}

// ascending reports whether a set of a complete copy lists additions in ascending order, all in marked buckets.
func ascending(s *SetOps) bool {
	var last prefix.Hash
	for i, c := range s.Ops {
		if c.Removed || i > 0 && c.Hash <= last {
			return false
		}
		if s.Patch != nil {
			if b, _ := bucketOf(c.Hash); !s.Patch.Has(b) {
				return false
			}
		}
		last = c.Hash
	}
	return true
}
