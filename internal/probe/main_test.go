package probe

import (
	"flag"
	"os"
	"testing"
)

// TestMain makes property tests run 10,000 cases, where the command line does not say.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		flag.Set("rapid.checks", checks)
	}
	os.Exit(m.Run())
}
