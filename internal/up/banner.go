package up

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"shoal/internal/agent"
	"shoal/internal/llama"
	"shoal/internal/term"
)

// starting says what is about to be started.
func (p *plan) starting() string {
	n := len(p.peers)
	agents := fmt.Sprintf("%d agents", n)
	if n == 1 {
		agents = "1 agent"
	}
	switch {
	case p.llama:
		return fmt.Sprintf("starting %d llama.cpp engines (%s to %s) and %s", n, p.peers[0].engineAddr, p.peers[n-1].engineAddr, agents)
	case p.cfg.Emulated > 0:
		return fmt.Sprintf("starting %s, %d of them with an emulated engine inside (it computes nothing; its answers mean nothing)", agents, p.cfg.Emulated)
	default:
		return fmt.Sprintf("starting %s beside the engines at %s", agents, strings.Join(p.cfg.Engines, ", "))
	}
}

// banner is what a user reads once all is ready: addresses, and commands to paste.
func (p *plan) banner(statuses []*agent.Status) string {
	t := term.NewTable(term.Left("AGENT"), term.Left("API"), term.Left("ADMIN"), term.Left("ENGINE"), term.Left("MODELS"))
	var model string
	for i := range p.peers {
		q := &p.peers[i]
		models := ownModels(statuses[i])
		if model == "" && len(models) > 0 {
			model = models[0]
		}
		t.Row(q.id, "http://"+q.listen+"/v1", "http://"+q.admin, q.engine(), strings.Join(models, ", "))
	}
	first := &p.peers[0]
	var b strings.Builder
	fmt.Fprintf(&b, "\nThe shoal is ready: every agent sees all %d.\n\n%s\n", len(p.peers), t)
	fmt.Fprintf(&b, "Ask any of them:\n\n%s\n\n", curl(first.listen, model, false))
	fmt.Fprintf(&b, "And streaming, through another one:\n\n%s\n\n", curl(p.peers[len(p.peers)-1].listen, model, true))
	fmt.Fprintf(&b, "Watch them: shoal status --admin %s --watch\nCtrl-C ends all that was started.\n", first.admin)
	return b.String()
}

func (q *peerPlan) engine() string {
	switch {
	case q.emulated:
		return "emulated, inside the agent"
	case q.engineURL == "":
		return "none: routes only"
	}
	return q.engineURL
}

// ownModels are the models of the agent's own engine.
func ownModels(s *agent.Status) []string {
	at := slices.IndexFunc(s.Peers, func(ps agent.PeerStatus) bool { return ps.ID == s.Self })
	if at < 0 {
		return nil
	}
	return s.Peers[at].Models
}

// curl is a command that asks the agent at addr one question. The small model answers it well under this system prompt
// and at temperature 0; under its template's own prompt, or at random, it may ramble, which max_tokens bounds.
func curl(addr, model string, stream bool) string {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	body, err := json.Marshal(struct {
		Model    string    `json:"model"`
		Messages []message `json:"messages"`
		Tokens   int       `json:"max_tokens"`
		Heat     int       `json:"temperature"`
		Stream   bool      `json:"stream,omitempty"`
	}{model, []message{{"system", llama.SystemPrompt}, {"user", "What is the capital of France?"}}, 64, 0, stream})
	if err != nil {
		panic(fmt.Sprintf("up: a request of strings does not marshal: %v", err))
	}
	flags := "-s"
	if stream {
		flags = "-sN"
	}
	return fmt.Sprintf("  curl %s http://%s/v1/chat/completions -H 'Content-Type: application/json' \\\n    -d %s", flags, addr, shellQuote(string(body)))
}

// shellQuote quotes s for a POSIX shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
