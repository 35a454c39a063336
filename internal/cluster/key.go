package cluster

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"strings"
)

// Key is a shoal's secret: who has it is a peer. The zero value is no key.
type Key [32]byte

// NewKey makes a key from the system's randomness.
func NewKey() Key {
	var k Key
	rand.Read(k[:]) // never fails: the runtime ends the program where there is no randomness
	return k
}

// Text is the key in base64, for a file; ParseKey reads it.
func (k Key) Text() string { return base64.StdEncoding.EncodeToString(k[:]) }

// String hides the key, so that it does not end up in a log.
func (k Key) String() string { return "key(hidden)" }

// GoString hides the key as String does.
func (k Key) GoString() string { return k.String() }

// MarshalText hides the key as String does: what prints configurations must not print it.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// ParseKey reads a key in base64, as shoal keygen prints it. Space around it is ignored.
func ParseKey(text string) (Key, error) {
	var k Key
	text = strings.TrimSpace(text)
	if text == "" {
		return k, fmt.Errorf("cluster: the key is empty; make one with: shoal keygen")
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return k, fmt.Errorf("cluster: the key is not base64; make one with: shoal keygen")
	}
	if len(b) != len(k) {
		return k, fmt.Errorf("cluster: the key has %d bytes, not %d; make one with: shoal keygen", len(b), len(k))
	}
	copy(k[:], b)
	if k == (Key{}) {
		return k, fmt.Errorf("cluster: the key is all zero; make one with: shoal keygen")
	}
	return k, nil
}

// maxKeyFile bounds a key file, in bytes: a key needs 44.
const maxKeyFile = 4096

// ReadKeyFile reads a key from a file that only its owner and group may read, and only its owner change. Lines that begin with # are ignored.
func ReadKeyFile(path string) (Key, error) {
	f, err := os.Open(path)
	if err != nil {
		return Key{}, fmt.Errorf("cluster: key file: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return Key{}, fmt.Errorf("cluster: key file: %w", err)
	}
	if !st.Mode().IsRegular() {
		return Key{}, fmt.Errorf("cluster: key file %s is not a regular file", path)
	}
	if m := st.Mode().Perm(); m&0o037 != 0 {
		return Key{}, fmt.Errorf("cluster: key file %s may be read or changed by others (mode %04o); run: chmod 600 %s", path, m, path)
	}
	if st.Size() > maxKeyFile {
		return Key{}, fmt.Errorf("cluster: key file %s has %d bytes; a key has 44", path, st.Size())
	}
	b := make([]byte, st.Size())
	n, _ := f.ReadAt(b, 0)
	var lines []string
	for line := range strings.Lines(string(b[:n])) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	k, err := ParseKey(strings.Join(lines, " "))
	if err != nil {
		return Key{}, fmt.Errorf("cluster: key file %s: %w", path, err)
	}
	return k, nil
}
