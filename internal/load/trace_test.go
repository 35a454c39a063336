package load

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func trace(t testing.TB, change func(*TraceConfig)) *Trace {
	t.Helper()
	cfg := DefaultTrace()
	if change != nil {
		change(&cfg)
	}
	w, err := OpenTrace("testdata/small.jsonl", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func common(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[:n]
}

func TestATraceSharesPrefixesWhereItsHashIDsAreEqual(t *testing.T) {
	for _, block := range []int{RecordedBlock, 16, 1} {
		w := trace(t, func(c *TraceConfig) { c.BlockTokens = block })
		text := make([]string, w.Len())
		for i := range text {
			text[i] = w.Request(i).User
		}
		lengths := [][2]int{{1200, 1200}, {1100, 1100}, {512, 512}, {513, 513}}
		for i, l := range lengths {
			want := (l[0]*block + RecordedBlock - 1) / RecordedBlock
			if got := units(text[i]); got != want {
				t.Errorf("block %d: prompt %d has %d units, want %d", block, i, got, want)
			}
		}
		// Two blocks are common to the first two, one to the third, none to the fourth.
		if got := units(common(text[0], text[1])); got < 2*block || got > 2*block+block/2+1 {
			t.Errorf("block %d: the first two share %d units, want %d", block, got, 2*block)
		}
		if !strings.HasPrefix(text[0], text[2]) {
			t.Errorf("block %d: the third is not the start of the first", block)
		}
		if got := units(common(text[0], text[3])); got > block/2+1 {
			t.Errorf("block %d: the first and the fourth share %d units", block, got)
		}
		if text[0] == text[1] || text[2] == text[3] {
			t.Errorf("block %d: two prompts became equal", block)
		}
	}
}

func TestATraceIsPlayedAtItsSpeed(t *testing.T) {
	for speed, want := range map[float64]time.Duration{1: 2500 * time.Millisecond, 10: 250 * time.Millisecond, 0.5: 5 * time.Second} {
		w := trace(t, func(c *TraceConfig) { c.Speed = speed })
		if got := w.Request(3).At; got != want {
			t.Errorf("speed %g: the last request comes at %v, want %v", speed, got, want)
		}
	}
	w := trace(t, nil)
	if w.Request(0).Output != 50 || w.Request(2).Output != 1 {
		t.Errorf("outputs of %d and %d tokens", w.Request(0).Output, w.Request(2).Output)
	}
}

func TestATraceCanBeLimited(t *testing.T) {
	if w := trace(t, func(c *TraceConfig) { c.Limit = 2 }); w.Len() != 2 {
		t.Errorf("%d requests with a limit of 2", w.Len())
	}
	// What comes after the limit is not even looked at.
	in := `{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[1]}` + "\nrubbish"
	cfg := DefaultTrace()
	cfg.Limit = 1
	if w, err := ReadTrace(strings.NewReader(in), "t", cfg); err != nil || w.Len() != 1 {
		t.Errorf("%v, %v", w, err)
	}
}

func TestTraceErrorsNameTheLine(t *testing.T) {
	ok := `{"timestamp":10,"input_length":600,"output_length":1,"hash_ids":[1,2]}` + "\n"
	for _, c := range []struct{ in, want string }{
		{ok + "not json\n", "line 2: not a request in JSON"},
		{ok + `[1,2]`, "line 2: not a request in JSON"},
		{ok + `{"input_length":1,"output_length":1,"hash_ids":[1]}`, "line 2: timestamp is missing"},
		{ok + `{"timestamp":-1,"input_length":1,"output_length":1,"hash_ids":[1]}`, "line 2: timestamp is missing or out of range"},
		{ok + `{"timestamp":9999999999999,"input_length":1,"output_length":1,"hash_ids":[1]}`, "line 2: timestamp is missing or out of range"},
		{ok + `{"timestamp":10,"output_length":1,"hash_ids":[1]}`, "line 2: input_length is missing"},
		{ok + `{"timestamp":10,"input_length":0,"output_length":1,"hash_ids":[]}`, "line 2: input_length is missing or out of range"},
		{ok + `{"timestamp":10,"input_length":1,"hash_ids":[1]}`, "line 2: output_length is missing"},
		{ok + `{"timestamp":10,"input_length":1,"output_length":1,"hash_ids":[-1]}`, "line 2: not a request in JSON"},
		{ok + `{"timestamp":10,"input_length":513,"output_length":1,"hash_ids":[1]}`, "line 2: 1 hash_ids for 513 tokens"},
		{ok + "\n" + `{"timestamp":9,"input_length":1,"output_length":1,"hash_ids":[1]}`, "line 3: timestamp 9 is before"},
		{"", "has no requests"},
		{"\n\n", "has no requests"},
	} {
		_, err := ReadTrace(strings.NewReader(c.in), "t.jsonl", DefaultTrace())
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "load: trace t.jsonl") {
			t.Errorf("%q:\n got %v\nwant %s", c.in, err, c.want)
		}
	}
	if _, err := OpenTrace("testdata/none.jsonl", DefaultTrace()); err == nil || !strings.HasPrefix(err.Error(), "load: trace: ") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestATraceLineHasALimit(t *testing.T) {
	long := bytes.Repeat([]byte(" "), MaxTraceLine+1)
	_, err := ReadTrace(bytes.NewReader(long), "t", DefaultTrace())
	if err == nil || !strings.Contains(err.Error(), "line 1: longer than 4194304 bytes") {
		t.Errorf("%v", err)
	}
}

func TestTraceRefusesWhatIsOutOfRange(t *testing.T) {
	for want, change := range map[string]func(*TraceConfig){
		"a speed of 0":       func(c *TraceConfig) { c.Speed = 0 },
		"a speed of -1":      func(c *TraceConfig) { c.Speed = -1 },
		"0 tokens a block":   func(c *TraceConfig) { c.BlockTokens = 0 },
		"513 tokens a block": func(c *TraceConfig) { c.BlockTokens = 513 },
		"a limit of -1":      func(c *TraceConfig) { c.Limit = -1 },
	} {
		cfg := DefaultTrace()
		change(&cfg)
		if _, err := OpenTrace("testdata/small.jsonl", cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func FuzzReadTrace(f *testing.F) {
	f.Add([]byte(`{"timestamp":10,"input_length":600,"output_length":1,"hash_ids":[1,2]}`))
	f.Add([]byte("{}\n[]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := ReadTrace(bytes.NewReader(b), "fuzz", DefaultTrace())
		if err != nil {
			return
		}
		last := time.Duration(0)
		for i, row := range w.rows {
			if row.at < last || row.input < 1 || len(row.blocks) != (row.input+RecordedBlock-1)/RecordedBlock {
				t.Fatalf("row %d: %+v after %v", i, row, last)
			}
			last = row.at
		}
	})
}
