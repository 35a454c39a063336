package llama

import (
	"os"
	"testing"
	"time"
)

// TestInstallForReal runs only where it is asked for, since it downloads 127 MB.
func TestInstallForReal(t *testing.T) {
	dir := os.Getenv("SHOAL_LLAMA_DIR")
	if dir == "" {
		t.Skip("set SHOAL_LLAMA_DIR to a directory to install llama.cpp into it")
	}
	if _, err := Setup(t.Context(), dir, os.Stderr); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := Setup(t.Context(), dir, os.Stderr); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("the second setup took %v", took)
	} else {
		t.Logf("the second setup took %v", took)
	}
}
