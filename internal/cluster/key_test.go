package cluster

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeyGoesThroughText(t *testing.T) {
	k := NewKey()
	got, err := ParseKey("  " + k.Text() + "\n")
	if err != nil || got != k {
		t.Fatalf("%v, %v", got == k, err)
	}
	if NewKey() == k {
		t.Fatal("two new keys are one")
	}
}

func TestKeyIsNotPrinted(t *testing.T) {
	k := NewKey()
	cfg := Config{Keys: []Key{k}}
	for _, s := range []string{fmt.Sprint(k), fmt.Sprintf("%v", cfg), fmt.Sprintf("%+v", &cfg), fmt.Sprintf("%#v", k)} {
		if strings.Contains(s, k.Text()) || strings.Contains(s, fmt.Sprint(k[0], " ", k[1], " ", k[2])) || !strings.Contains(s, "hidden") {
			t.Errorf("printed as %s", s)
		}
	}
}

func TestWrongKeysSayWhatIsWrong(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"", "empty"},
		{" \n", "empty"},
		{"not base64!", "not base64"},
		{base64.StdEncoding.EncodeToString(make([]byte, 16)), "16 bytes, not 32"},
		{base64.StdEncoding.EncodeToString(make([]byte, 32)), "all zero"},
	} {
		_, err := ParseKey(tc.text)
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "shoal keygen") {
			t.Errorf("%q: %v", tc.text, err)
		}
	}
}

func TestKeyFile(t *testing.T) {
	k := NewKey()
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	if err := os.WriteFile(path, []byte("# of the test shoal\n"+k.Text()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadKeyFile(path); err != nil || got != k {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		mode os.FileMode
		want string
	}{{0o400, ""}, {0o640, ""}, {0o644, "chmod"}, {0o620, "chmod"}, {0o601, "chmod"}} {
		os.Chmod(path, tc.mode)
		_, err := ReadKeyFile(path)
		if got := err != nil; got != (tc.want != "") || got && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("mode %04o: %v", tc.mode, err)
		}
	}
	big := filepath.Join(dir, "big")
	os.WriteFile(big, bytes.Repeat([]byte("A"), maxKeyFile+1), 0o600)
	for p, want := range map[string]string{dir: "not a regular file", filepath.Join(dir, "none"): "no such file", big: "has 4097 bytes"} {
		if _, err := ReadKeyFile(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func TestDerivedKeysAreApart(t *testing.T) {
	a, b := Key{1}, Key{2}
	seen := map[string]bool{string(a[:]): true, string(b[:]): true}
	for _, k := range []Key{a, b} {
		ca, priv, err := k.authority()
		if err != nil {
			t.Fatal(err)
		}
		again, _, _ := k.authority()
		if !bytes.Equal(ca.Raw, again.Raw) {
			t.Error("one key makes two authorities")
		}
		for _, part := range [][]byte{k.gossip(), priv.Seed()} {
			if len(part) != 32 || seen[string(part)] {
				t.Error("a derived key is not its own")
			}
			seen[string(part)] = true
		}
	}
}

func TestCertificateNamesOneIDOfOneKey(t *testing.T) {
	_, _, roots, err := tlsConfigs("a", []Key{{1}, {2}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		key  Key
		want string
	}{{Key{1}, ""}, {Key{2}, ""}, {Key{3}, "not of this shoal's key"}} {
		other, _, _, err := tlsConfigs("some.Peer_1-x", []Key{tc.key})
		if err != nil {
			t.Fatal(err)
		}
		id, err := certID([]*x509.Certificate{other.Certificates[0].Leaf}, roots)
		if tc.want == "" && (err != nil || id != "some.Peer_1-x") || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("key %d: %q, %v", tc.key[0], id, err)
		}
	}
	if _, err := certID(nil, roots); err == nil {
		t.Error("no certificate is good enough")
	}
	ca, _, _ := Key{1}.authority()
	if _, err := certID([]*x509.Certificate{ca}, roots); err == nil {
		t.Error("the authority itself passes for a peer")
	}
}
