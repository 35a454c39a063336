package replica

import (
	"flag"
	"os"
	"testing"
)

// TestMain makes property tests run more cases than the library's default, where the command line does not say.
func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		flag.Set("rapid.checks", "500")
	}
	os.Exit(m.Run())
}
