// Package body reads the body of an OpenAI request once: it checks that it is JSON, finds the few members that routing
// and the gateway need, and writes the prompt's canonical rendering into a prefix.Chain. It also puts another model name
// or cache salt in.
//
// It is not a JSON library, and builds no tree: what goes on to the engine is the body as received. Its main type is
// Scanner. Invariants: it accepts what RFC 8259 does, and nothing else (which, invalid UTF-8 apart, is what encoding/json
// accepts), in time linear in the body and with memory bounded by the members of its messages; a member given twice counts
// as its last, as in Python; it never panics; two bodies that say the same in the same order render the same.
//
// It is written by hand because a parser's tree costs more than the scan itself (80 bytes and more for each number of a
// prompt of token ids), and because splices and error messages need positions in the body, which none of the fast
// libraries give. encoding/json is the oracle of its tests.
package body
