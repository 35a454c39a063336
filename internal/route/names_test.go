package route

import (
	"strings"
	"testing"
)

func wantError(t *testing.T, err error, part string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), "route: ") || !strings.Contains(err.Error(), part) {
		t.Errorf("error %v; want one of route's that says %q", err, part)
	}
}

func TestPolicyNamesRoundTrip(t *testing.T) {
	for k := range Kind(len(kindNames)) {
		text, err := k.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var back Kind
		if err := back.UnmarshalText(text); err != nil || back != k || string(text) != k.String() {
			t.Errorf("%v: %q, back %v, %v", k, text, back, err)
		}
	}
	var k Kind
	wantError(t, k.UnmarshalText([]byte("best")), "longest-prefix")
	_, err := Kind(99).MarshalText()
	wantError(t, err, "99")
}

func TestEveryReasonHasOneWordOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	check := func(s string) {
		if s == "" || strings.ContainsAny(s, " (") || seen[s] {
			t.Errorf("%q is no word, or one of two", s)
		}
		seen[s] = true
	}
	for r := NotDecided; r <= ByAllPushBack; r++ {
		check(r.String())
	}
	for r := NoCandidate; r <= AllDown; r++ {
		check(r.String())
	}
	seen = map[string]bool{}
	for e := Tried; e <= PushedBack; e++ {
		check(e.String())
	}
	if Eligible.String() != "" {
		t.Errorf("eligible is %q", Eligible)
	}
	if got := Reason(99).String() + Exclusion(99).String() + Kind(99).String(); got != "reason(99)exclusion(99)policy(99)" {
		t.Error(got)
	}
}
