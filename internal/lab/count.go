package lab

// Count is what has left one end of a cable since the lab came up: what the direction from From to To carried. Bytes are
// frames with their Ethernet headers.
type Count struct {
	From    string `json:"from"`
	To      string `json:"to"`
	Bytes   uint64 `json:"bytes"`
	Packets uint64 `json:"packets"`
}
