package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain lets this test program be the ends that it measures.
func TestMain(m *testing.M) {
	var err error
	switch strings.Join(os.Args[1:], " ") {
	case "-role receive":
		err = receive(os.Stdin, os.Stdout)
	case "-role send":
		err = send(context.Background(), os.Stdin, os.Stdout)
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
}

func TestOurEndsMoveWhatTheyAreTold(t *testing.T) {
	s, err := runOurs(t.Context(), order{Streams: 2, Bytes: 64 << 20}, rand.New(rand.NewPCG(1, 1)))
	if err != nil || s.Bytes != 64<<20 || s.Took <= 0 || s.Send <= 0 || s.Receive <= 0 {
		t.Fatalf("%+v %v", s, err)
	}
}

func TestMemoryIsMovedOnceAndAgain(t *testing.T) {
	o := order{Bytes: 2*bufferBytes + 5, Memory: true}
	if got := o.sizes(); len(got) != 3 || got[0] != bufferBytes || got[2] != 5 {
		t.Error(got)
	}
	o.Memory = false
	if got := o.sizes(); len(got) != 1 || got[0] != o.Bytes {
		t.Error(got)
	}
}

func TestIperf3sAnswer(t *testing.T) {
	s, err := parseIperf3([]byte(`{"end":{"sum_received":{"seconds":2.5,"bytes":5000000000}}}`))
	if err != nil || s.rate() != 2 || s.Took != 2500*time.Millisecond {
		t.Errorf("%+v %v", s, err)
	}
	for _, bad := range []string{"", "{}", `{"error":"unable to connect"}`, `{"end":{"sum_received":{"seconds":0,"bytes":1}}}`} {
		if _, err := parseIperf3([]byte(bad)); err == nil {
			t.Errorf("%q is an answer", bad)
		}
	}
}

func TestTheReportComparesTheSameWork(t *testing.T) {
	second := func(n int64) []sample {
		return []sample{{Bytes: n, Took: time.Second, Send: time.Second / 2, Receive: time.Second / 4}}
	}
	cells := []*cell{
		{Name: "iperf3", What: "one buffer, into nothing", Streams: 1, samples: second(2e9)},
		{Name: "shoal", What: "zeros, into nothing", Streams: 1, samples: second(3e9)},
		{Name: "mooncake", What: "memory to memory", Streams: 1, samples: second(1e9)},
		{Name: "shoal", What: "memory to memory", Streams: 1, samples: second(2e9)},
	}
	r := report(options{seed: 7, rounds: 1}, cells, []string{"nothing: of this kind"})
	var b bytes.Buffer
	r.write(&b)
	for _, want := range []string{"seed 7", "| memory to memory | 1 | mooncake | 1.00 (1.00 to 1.00) | 0.50 | 0.25 |",
		"shoal moves 1.50 times what iperf3", "shoal moves 2.00 times what mooncake", "ABSENT nothing"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	j, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(j), `"gb_per_s":3`) || !strings.Contains(string(j), `"name":"mooncake"`) {
		t.Errorf("%s %v", j, err)
	}
}

func TestMedianOfNothing(t *testing.T) {
	if median(nil) != 0 || median([]float64{4, 1, 3, 2}) != 2.5 {
		t.Error("not 0, or not 2.5")
	}
}

func TestOptionsSayWhatIsWrong(t *testing.T) {
	good := options{rounds: 1, mib: 64, output: "text"}
	if err := good.validate(nil); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []options{{rounds: 0, mib: 64, output: "text"}, {rounds: 1, mib: 1, output: "text"}, {rounds: 1, mib: 64, output: "xml"}} {
		if bad.validate(nil) == nil {
			t.Errorf("%+v", bad)
		}
	}
	if good.validate([]string{"x"}) == nil {
		t.Error("an argument is taken")
	}
}
