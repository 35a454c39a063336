package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"shoal/internal/peer"
	"shoal/internal/prefix"
)

func TestStateFileComesBackAsItWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	epoch := peer.Epoch{Start: 12, Counter: 34}
	blocks := []prefix.Element{{Hash: 1, Depth: 2}, {Hash: 1 << 63, Depth: 65535}}
	if _, _, err := readState(path, "a"); err != errNoState {
		t.Fatalf("without a file: %v", err)
	}
	if err := writeState(path, "a", epoch, blocks); err != nil {
		t.Fatal(err)
	}
	e, got, err := readState(path, "a")
	if err != nil || e != epoch || len(got) != 2 || got[0] != blocks[0] || got[1] != blocks[1] {
		t.Fatalf("read back %v %v %v", e, got, err)
	}
	if _, _, err := readState(path, "b"); err == nil {
		t.Fatal("another peer's file was taken")
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Fatalf("a temporary file was left: %v", left)
	}
}

func TestDamagedStateFileIsRefusedWhole(t *testing.T) {
	good := encodeState("a", peer.Epoch{Start: 1}, []prefix.Element{{Hash: 7, Depth: 1}})
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x40
		if _, _, _, err := decodeState(bad); err == nil {
			t.Fatalf("a flipped bit in byte %d passed", i)
		}
	}
	for i := range good {
		if _, _, _, err := decodeState(good[:i]); err == nil {
			t.Fatalf("a file cut to %d bytes passed", i)
		}
	}
}

func FuzzDecodeState(f *testing.F) {
	f.Add(encodeState("a", peer.Epoch{Start: 1}, []prefix.Element{{Hash: 7, Depth: 1}}))
	f.Add([]byte(stateMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, e, blocks, err := decodeState(b)
		if err == nil && !bytes.Equal(encodeState(id, e, blocks), b) {
			t.Fatal("decoding and encoding is not the identity")
		}
	})
}
