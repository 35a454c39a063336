package load

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func readAll(r io.Reader) ([]string, error) {
	ev := newEvents(r)
	var out []string
	for {
		data, err := ev.next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, string(data))
	}
}

func TestServerSentEvents(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"one":                      {"data: a\n\n", []string{"a"}},
		"without a space":          {"data:a\n\n", []string{"a"}},
		"one space only is eaten":  {"data:  a\n\n", []string{" a"}},
		"CRLF":                     {"data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
		"comments and other names": {": ping\n\nevent: error\nid: 3\ndata: a\nretry: 9\n\n", []string{"a"}},
		"several data lines":       {"data: a\ndata: b\n\n", []string{"a\nb"}},
		"empty data":               {"data:\n\ndata\n\n", []string{"", ""}},
		"blank lines":              {"\n\n\ndata: a\n\n\n\n", []string{"a"}},
		"cut off by the end":       {"data: a\n\ndata: b\n", []string{"a"}},
		"colons inside":            {"data: {\"a\":1}\n\n", []string{`{"a":1}`}},
		"not an event stream":      {"hello", nil},
	} {
		for way, r := range map[string]io.Reader{
			"whole":         strings.NewReader(c.in),
			"byte by byte":  iotest.OneByteReader(strings.NewReader(c.in)),
			"data with EOF": iotest.DataErrReader(strings.NewReader(c.in)),
		} {
			got, err := readAll(r)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s, %s: got %q (%v), want %q", name, way, got, err, c.want)
			}
		}
	}
}

// pieces gives out its bytes in the given sizes, as a network does.
type pieces struct {
	b     []byte
	sizes []int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := len(p.b)
	if len(p.sizes) > 0 {
		n, p.sizes = min(n, p.sizes[0]), p.sizes[1:]
	}
	n = copy(b, p.b[:n])
	p.b = p.b[n:]
	return n, nil
}

func TestEventsDoNotDependOnHowTheNetworkCutsThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var in bytes.Buffer
		var want []string
		for _, s := range rapid.SliceOf(rapid.StringMatching(`[ -~]{0,40}`)).Draw(t, "events") {
			s = strings.Repeat(s, rapid.SampledFrom([]int{1, 1, 1, 500}).Draw(t, "times")) // longer than the buffer
			in.WriteString("data: " + s + "\n\n")
			want = append(want, s)
		}
		sizes := rapid.SliceOf(rapid.IntRange(1, 50)).Draw(t, "sizes")
		got, err := readAll(&pieces{in.Bytes(), sizes})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %q (%v), want %q", got, err, want)
		}
	})
}

func TestAnEventHasALimit(t *testing.T) {
	fits := strings.Repeat("x", MaxEvent-len("data: ")-len("\n"))
	if got, err := readAll(strings.NewReader("data: " + fits + "\n\n")); err != nil || len(got) != 1 || got[0] != fits {
		t.Errorf("an event at the limit: %d events, %v", len(got), err)
	}
	for name, in := range map[string]string{
		"one line":     "data: " + fits + "x\n\n",
		"many lines":   strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n", MaxEvent/1000+1) + "\n",
		"without ends": strings.Repeat("x", 2*MaxEvent),
	} {
		if _, err := readAll(strings.NewReader(in)); !errors.Is(err, errEventTooLong) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: a\n\ndata: [DONE]\n\n"), byte(3))
	f.Add([]byte(": x\r\n\r\ndata"), byte(1))
	f.Fuzz(func(t *testing.T, b []byte, size byte) {
		want, err := readAll(bytes.NewReader(b))
		if err != nil {
			t.Skip()
		}
		got, err := readAll(&pieces{b, bytes2ints(b, int(size)+1)})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %q (%v), want %q", got, err, want)
		}
	})
}

// bytes2ints makes sizes out of the fuzzer's bytes.
func bytes2ints(b []byte, size int) []int {
	out := make([]int, len(b))
	for i, c := range b {
		out[i] = int(c)%size + 1
	}
	return out
}
