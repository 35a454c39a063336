package transfer

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A peer that may ask for files of a directory gets nothing from outside it, and stops nobody.
func TestFilesAreSentFromBelowTheirDirectoryOnly(t *testing.T) {
	outside, dir := filepath.Join(t.TempDir(), "secret"), t.TempDir()
	for _, err := range []error{
		os.WriteFile(outside, []byte("secret"), 0o600), os.WriteFile(filepath.Join(dir, "kv"), []byte("cache"), 0o600),
		os.WriteFile(filepath.Join(dir, ".kv.shoal-part"), []byte("half"), 0o600), os.Symlink(outside, filepath.Join(dir, "link")),
		os.Symlink("kv", filepath.Join(dir, "inside")), syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600), os.Mkdir(filepath.Join(dir, "sub"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []string{"link", "../secret", outside, "fifo", "sub", ".kv.shoal-part", "no", ""} {
		if f, err := FileIn(dir, bad); err == nil {
			f.Close()
			t.Errorf("%q is sent", bad)
		}
	}
	for _, good := range []string{"kv", "inside"} {
		f, err := FileIn(dir, good)
		if err != nil || f.Size() != 5 {
			t.Fatalf("%s: %v", good, err)
		}
		f.Close()
	}
}
