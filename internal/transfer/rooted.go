package transfer

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// FileIn opens a file below dir to send it, as FileSource does. No link leads out of dir, and what is no regular file does
// not make it wait. Names that begin with a dot are of this package's own files and are refused.
func FileIn(dir, name string) (*File, error) {
	if strings.HasPrefix(filepath.Base(name), ".") {
		return nil, fmt.Errorf("transfer: %q: files whose names begin with a dot are not sent", name)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("transfer: %w", err)
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("transfer: %w", err)
	}
	return regular(f)
}
