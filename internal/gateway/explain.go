package gateway

import (
	"encoding/json"

	"shoal/internal/node"
)

// maxExplanation bounds the explanation header: clients' limits for one field begin at 16 KiB.
const maxExplanation = 8 << 10

// explanation is e as one line of JSON. Of many candidates it keeps the chosen one and as many of the others as fit, in
// their order.
func explanation(e *node.Explanation) string {
	b := explain(e)
	if len(b) <= maxExplanation {
		return string(b)
	}
	short := *e
	for keep := len(e.Candidates) * maxExplanation / len(b); keep > 0 && len(b) > maxExplanation; keep = keep * 9 / 10 {
		short.Candidates = short.Candidates[:0:0]
		for i, c := range e.Candidates {
			if c.Chosen || i < keep {
				short.Candidates = append(short.Candidates, c)
			}
		}
		b = explain(&short)
	}
	if len(b) > maxExplanation {
		return ""
	}
	return string(b)
}

func explain(e *node.Explanation) []byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic("gateway: an explanation does not become JSON: " + err.Error())
	}
	return b
}
