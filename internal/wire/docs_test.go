package wire

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"shoal/internal/peer"
	"shoal/internal/replica"
)

// The description for other programs says what this one does.
func TestLimitsAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for name, v := range map[string]int{
		"payload of a frame": MaxFrame, "payload of a handshake's frame": MaxHandshake, "a datagram": MaxDatagram, "all frames of an Exchange": MaxExchange,
		"a peer's ID": peer.MaxID, "name of a shoal": MaxShoal, "reason of Refuse": MaxReason, "request ID": MaxID, "method": MaxMethod, "path": MaxPath, "query": MaxQuery,
		"header fields": MaxPairs, "names and values of header fields, together": MaxHeader, "model, tokeniser, alias": MaxModel, "blocks of a prompt": MaxChain,
		"code of Fail": MaxCode, "message of Fail": MaxMessage, "a record": MaxRecord, "rows, wants: in one message": replica.MaxRows, "deltas in one message": maxDeltas,
		"trees in one message": replica.MaxTrees, "sections of a document": replica.MaxSections, "values of a delta": replica.MaxValues, "operations of a delta": replica.MaxOps,
		"parts of a complete copy": replica.MaxParts, "messages of a round": replica.MaxRound,
	} {
		if row := fmt.Sprintf("| %s | %d |\n", name, v); !strings.Contains(text, row) {
			t.Errorf("docs/protocol.md lacks the row %q", row)
		}
	}
	for i := range 256 {
		if typ := Type(i); typ.Known() {
			if row := fmt.Sprintf("| %d | %s%s |", i, strings.ToUpper(typ.String()[:1]), typ.String()[1:]); !strings.Contains(text, row) {
				t.Errorf("docs/protocol.md lacks the row %q", row)
			}
		}
	}
}
