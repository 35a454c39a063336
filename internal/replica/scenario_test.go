package replica

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"shoal/internal/peer"
)

// TestScenarios plays rounds between peers and shows every message.
//
//	start ID...  [incarnation=+N] [recall=DURATION]   starts peers, or starts them anew; all think each other alive
//	set ID value=X             own info section
//	add ID from=N n=N          elements of the own text blocks; remove takes them away, reset empties the section
//	round A B                  a round that A begins
//	dead ID by=ID              by thinks that ID is dead
//	wait DURATION
//	show ID                    what ID holds
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		s := newShoal(t, Limits{}, []peer.ID{}...)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.play(t, d) })
	})
}

func (s *shoal) play(t *testing.T, td *datadriven.TestData) string {
	var out strings.Builder
	arg := func(name string) int {
		n := 0
		if td.HasArg(name) {
			var text string
			td.ScanArgs(t, name, &text)
			n, _ = strconv.Atoi(text)
		}
		return n
	}
	var ids []peer.ID
	for _, a := range td.CmdArgs {
		if len(a.Vals) == 0 {
			ids = append(ids, peer.ID(a.Key))
		}
	}
	switch td.Cmd {
	case "start":
		for _, id := range ids {
			d := s.start(id, born+uint64(arg("incarnation")), Limits{})
			if td.HasArg("recall") {
				var text string
				td.ScanArgs(t, "recall", &text)
				for_, _ := time.ParseDuration(text)
				d.Recall(s.now + for_)
			}
		}
	case "set":
		var v string
		td.ScanArgs(t, "value", &v)
		must(t, s.docs[ids[0]].Set(info, v))
	case "add":
		must(t, s.docs[ids[0]].Change(blocks, addRange(arg("from"), arg("n"))))
	case "remove":
		c := addRange(arg("from"), arg("n"))
		for i := range c {
			c[i].Removed = true
		}
		must(t, s.docs[ids[0]].Change(blocks, c))
	case "reset":
		must(t, s.docs[ids[0]].Reset(blocks))
	case "dead":
		var by string
		td.ScanArgs(t, "by", &by)
		s.docs[peer.ID(by)].Dead(ids[0], s.now)
	case "wait":
		d, err := time.ParseDuration(string(ids[0]))
		must(t, err)
		s.now += d
		for _, id := range s.ids() {
			if gone := s.docs[id].Expire(s.now, nil); len(gone) > 0 {
				fmt.Fprintf(&out, "%s drops %v\n", id, gone)
			}
		}
	case "round":
		from, to := ids[0], ids[1]
		for _, x := range s.round(ids[0], ids[1]) {
			fmt.Fprintf(&out, "%s to %s: %s\n", from, to, describe(x))
			from, to = to, from
		}
	case "show":
		d := s.docs[ids[0]]
		for _, owner := range d.Owners(nil) {
			st, _ := d.Stamp(owner)
			fmt.Fprintf(&out, "%s at %s: info %v, %d blocks\n", owner, stamp(st), d.Content(owner, info), d.docs[owner].elements)
		}
		if r := d.Recalled(); r != nil {
			fmt.Fprintf(&out, "recalled %s with %d blocks\n", stamp(r.Stamp), len(r.Sets[0].Ops))
		}
	default:
		td.Fatalf(t, "unknown command")
	}
	return out.String()
}

func stamp(s Stamp) string {
	if s.Incarnation == 0 {
		return "nothing"
	}
	return fmt.Sprintf("+%d.%d", s.Incarnation-born, s.Version)
}

func describe(x *Exchange) string {
	var parts []string
	rows := func(what string, rows []Summary) {
		for _, r := range rows {
			dead := ""
			if r.Dead {
				dead = " (dead)"
			}
			parts = append(parts, fmt.Sprintf("%s %s %s%s", what, r.Owner, stamp(r.Stamp), dead))
		}
	}
	if x.Begin {
		parts = append(parts, "begin")
	}
	rows("holds", x.Summaries)
	rows("offers", x.Offers)
	for _, w := range x.Wants {
		tree := ""
		if len(w.Trees) > 0 {
			tree = " with trees"
		}
		parts = append(parts, fmt.Sprintf("wants %s beyond %s%s", w.Owner, stamp(w.Have), tree))
	}
	for _, d := range x.Deltas {
		what := fmt.Sprintf("changes of %s %d to %d", d.Owner, d.From, d.To)
		switch {
		case d.Base != 0:
			what = fmt.Sprintf("patch of %s to %s", d.Owner, stamp(d.Stamp()))
		case d.Complete():
			what = fmt.Sprintf("copy of %s at %s", d.Owner, stamp(d.Stamp()))
		}
		if d.Parts > 1 {
			what += fmt.Sprintf(" part %d of %d", d.Part+1, d.Parts)
		}
		parts = append(parts, fmt.Sprintf("%s (%d values, %d operations)", what, len(d.Values), d.OpCount()))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(slices.Clip(parts), "; ")
}
