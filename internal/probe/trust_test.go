package probe

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Inputs, one after the other a second apart, and what the machine does: state, event, and when it acts again.
func TestTrust(t *testing.T) {
	c := WatchConfig{Interval: 10 * time.Second, Doubt: time.Second, Retry: time.Minute, MaxRetry: 5 * time.Minute}
	const (
		ok    = "learned: trusted learned 10s"
		again = "learned: trusted relearned 10s"
		fine  = "8 of 8: trusted verified 10s"
	)
	for name, steps := range map[string][]string{
		"all is well":                         {ok, fine, fine},
		"a lost probe is no mismatch":         {ok, "7 of 8: trusted verified 10s", "1 of 8: trusted verified 10s"},
		"one contradiction, then none":        {ok, "8 of 8 but 1: suspect - 1s", fine, "8 of 8 but 1: suspect - 1s", fine},
		"a torn port is a contradiction":      {ok, "8 of 8 torn 1: suspect - 1s", fine, "8 of 8 torn 2: learning mismatch 0s"},
		"one contradiction after the other":   {ok, "8 of 8 but 1: suspect - 1s", "8 of 8 but 1: learning mismatch 0s", again, fine},
		"two contradictions at once":          {ok, "2 of 8 but 2: learning mismatch 0s", again},
		"a suspect of which nothing is heard": {ok, "8 of 8 but 1: suspect - 1s", "0 of 8: suspect - 10s", "8 of 8 but 1: learning mismatch 0s"},
		"blind is said once":                  {ok, "0 of 8: trusted - 10s", "0 of 8: trusted - 10s", "0 of 8: trusted blind 10s", "0 of 8: trusted - 10s", fine, "0 of 8: trusted - 10s", "0 of 8: trusted - 10s", "0 of 8: trusted blind 10s"},
		"nothing to ask is no blindness":      {ok, "0 of 0: trusted verified 10s", "0 of 0: trusted verified 10s", "0 of 0: trusted verified 10s"},
		"learning fails": {"sprays: aside stepped aside 1m0s", "sprays: aside - 2m0s", "sprays: aside - 4m0s", "sprays: aside - 5m0s", "blind: aside stepped aside 5m0s",
			"other: aside stepped aside 5m0s", "other: aside - 5m0s", "learned: trusted learned 10s", "8 of 8 but 2: learning mismatch 0s", "sprays: aside stepped aside 1m0s"},
		"the third mismatch": {ok, "8 of 8 but 2: learning mismatch 0s", again, "8 of 8 but 2: learning mismatch 0s", again, "8 of 8 but 2: aside mismatch 1m0s",
			"unstable: aside - 2m0s", again, "8 of 8 but 2: learning mismatch 0s"},
		"three mismatches in a long time": {ok, "8 of 8 but 2: learning mismatch 0s", again, "8 of 8 but 2: learning mismatch 0s", again, "wait", "8 of 8 but 2: learning mismatch 0s"},
	} {
		t.Run(name, func(t *testing.T) {
			var m trust
			now := time.Duration(0)
			for i, text := range steps {
				now += time.Second
				if text == "wait" {
					now += flapWindow
					continue
				}
				in, _, _ := strings.Cut(text, ":")
				var s step
				switch in {
				case "learned":
					s = m.learned(nil, &c)
				case "sprays":
					s = m.learned(fmt.Errorf("x: %w", ErrSprays), &c)
				case "blind":
					s = m.learned(ErrBlind, &c)
				case "unstable":
					s = m.learned(ErrUnstable, &c)
				case "other":
					s = m.learned(errors.New("no buffer space"), &c)
				default:
					var v Verdict
					var wrong int
					fmt.Sscanf(in, "%d of %d but %d", &v.Answered, &v.Asked, &wrong)
					fmt.Sscanf(in, "%d of %d torn %d", &v.Answered, &v.Asked, &v.Torn)
					v.Wrong = make([]Wrong, wrong)
					s = m.verified(now, &v, &c)
				}
				event := "-"
				if s.event != 0 {
					event = s.event.String()
				}
				if got := fmt.Sprintf("%s: %s %s %s", in, m.state, event, s.after); got != text {
					t.Fatalf("step %d: %s; want %s", i, got, text)
				}
			}
		})
	}
}
