package wire

import (
	"bytes"
	"testing"

	"shoal/internal/peer"
	"shoal/internal/replica"
)

// fuzz feeds bytes to one decoder. What it accepts is encoded again and decoded: both must be the same bytes, so that a
// message means the same to the next peer.
func fuzz[T any](f *testing.F, enc func([]byte, *T) ([]byte, error), dec func([]byte, *T) error, seeds ...string) {
	all := examples(f)
	for _, s := range seeds {
		f.Add(all[s]())
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := new(T)
		if dec(b, m) != nil {
			return
		}
		once, err := enc(nil, m)
		if err != nil {
			t.Fatalf("decoded %+v, which cannot be encoded: %v", m, err)
		}
		again := new(T)
		if err := dec(once, again); err != nil {
			t.Fatalf("decoded %+v, encoded as %x, which cannot be decoded: %v", m, once, err)
		}
		if twice, err := enc(nil, again); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%x\nbecomes %x\n%v", once, twice, err)
		}
	})
}

func FuzzDecodeHello(f *testing.F)   { fuzz(f, AppendHello, DecodeHello, "hello") }
func FuzzDecodeWelcome(f *testing.F) { fuzz(f, sure(AppendWelcome), DecodeWelcome, "welcome") }
func FuzzDecodeRefuse(f *testing.F)  { fuzz(f, sure(AppendRefuse), DecodeRefuse, "refuse") }
func FuzzDecodeForward(f *testing.F) { fuzz(f, AppendForward, DecodeForward, "forward") }
func FuzzDecodeAccept(f *testing.F)  { fuzz(f, sure(AppendAccept), DecodeAccept, "accept") }
func FuzzDecodeDecline(f *testing.F) { fuzz(f, sure(AppendDecline), DecodeDecline, "decline") }
func FuzzDecodeHead(f *testing.F)    { fuzz(f, AppendHead, DecodeHead, "head") }
func FuzzDecodeEnd(f *testing.F)     { fuzz(f, sure(AppendEnd), DecodeEnd, "end") }
func FuzzDecodeFail(f *testing.F)    { fuzz(f, sure(AppendFail), DecodeFail, "fail") }
func FuzzDecodeInfo(f *testing.F)    { fuzz(f, sure(AppendInfo), DecodeInfo, "info", "load") }
func FuzzDecodeLoad(f *testing.F)    { fuzz(f, sure(AppendLoad), DecodeLoad, "load", "info") }

func FuzzDecodePushBack(f *testing.F) {
	fuzz(f, sure(AppendPushBack), func(b []byte, m *PushBack) error {
		_, payload, err := ParseDatagram(b)
		if err != nil {
			return err
		}
		return DecodePushBack(payload, m)
	}, "push-back")
}

// FuzzDecodeDelta also applies what it accepts: documents must hold together whatever comes.
func FuzzDecodeDelta(f *testing.F) {
	decode := func(b []byte, m *replica.Delta) error {
		d, err := DecodeDelta(b)
		if err != nil {
			return err
		}
		docs := replica.New("p1", 1_790_000_000_000, newStore(), replica.Limits{})
		docs.Alive("p2", 0)
		docs.Apply(d, 0)
		docs.Apply(d, 0)
		for _, owner := range []peer.ID{d.Owner, "p1"} {
			for _, s := range docs.Snapshot(owner) {
				if _, err := AppendDelta(nil, s); err != nil {
					f.Errorf("a document that was taken in cannot be sent on: %v", err)
				}
			}
		}
		*m = *d
		return nil
	}
	fuzz(f, AppendDelta, decode, "changes", "patch")
}

// FuzzDecodeExchange also answers what it accepts.
func FuzzDecodeExchange(f *testing.F) {
	all := examples(f)
	for _, s := range []string{"begin", "answer", "trees"} {
		f.Add(all[s]())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x := new(Exchange)
		if _, err := DecodeExchange(b, x); err != nil {
			return
		}
		docs := replica.New("p1", 1_790_000_000_000, newStore(), replica.Limits{})
		if err := docs.Set(replica.Section{Kind: replica.KindLoad}, &peer.Load{}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if out, _ := docs.Answer("p2", x, 0, nil); out != nil {
				payloads(t, out)
			}
		}
	})
}

func FuzzParseHeader(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 22})
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, n, err := ParseHeader(b); err == nil && (n < 0 || n > MaxFrame) {
			t.Fatalf("a payload of %d bytes", n)
		}
	})
}

func FuzzParseDatagram(f *testing.F) {
	f.Add(examples(f)["push-back"]())
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, payload, err := ParseDatagram(b); err == nil && len(payload) > MaxDatagram-2 {
			t.Fatalf("a payload of %d bytes", len(payload))
		}
	})
}
