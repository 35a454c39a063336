package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"shoal/internal/peer"
)

// Limits of what a target may answer.
const (
	maxAnswer     = 16 << 20 // bytes of a plain answer
	maxErrorBody  = 4 << 10
	maxModels     = 4 << 20
	maxDetail     = 300 // characters of an error kept
	preflightTime = 5 * time.Second
)

// client speaks the OpenAI API to the targets of one run. It is safe for concurrent use.
type client struct {
	cfg     *Config
	targets []*url.URL
	fresh   []bool // by target: a connection of its own for every request
	http    *http.Client
	model   string
}

func newClient(cfg *Config) (*client, error) {
	c := &client{cfg: cfg, model: cfg.Model}
	for _, t := range cfg.Targets {
		u, err := target(t, cfg.Remote)
		if err != nil {
			return nil, err
		}
		c.targets = append(c.targets, u)
	}
	c.fresh = make([]bool, len(c.targets))
	rt := cfg.Transport
	if rt == nil {
		t := &http.Transport{
			MaxIdleConnsPerHost: max(cfg.Clients, cfg.InFlight, DefaultClients),
			IdleConnTimeout:     4 * time.Second, // llama.cpp closes its own after 5 s: be the first
			DisableCompression:  true,
		}
		if cfg.Remote {
			t.Proxy = http.ProxyFromEnvironment
		}
		rt = t
	}
	c.http = &http.Client{
		Transport: rt,
		// A redirect could lead off this machine, and hides which endpoint was measured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// preflight asks every target for its models, so that a wrong address, a missing key or an unknown model is one clear
// error and not a report full of failures.
func (c *client) preflight(ctx context.Context) error {
	for i, t := range c.targets {
		ctx, cancel := context.WithTimeout(ctx, preflightTime)
		names, software, err := c.models(ctx, t)
		cancel()
		// llama.cpp says keep-alive and closes right after every stream: who sends the next request on that connection
		// is cut off, in a race that says nothing about the engine.
		c.fresh[i] = software == "llama.cpp"
		if err != nil {
			return err
		}
		if i > 0 || names == nil {
			if c.model == "" {
				return fmt.Errorf("load: target %s lists no models; name one with --model", t)
			}
			continue
		}
		if c.model == "" {
			if len(names) == 0 {
				return fmt.Errorf("load: target %s serves no model yet; wait until its engine is up, or name one with --model", t)
			}
			c.model = names[0]
		}
	}
	return nil
}

// models lists what a target serves, nil where it has no such list, and the name that its software gives itself.
func (c *client) models(ctx context.Context, t *url.URL) (names []string, software string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.String()+"/v1/models", nil)
	if err != nil {
		return nil, "", fmt.Errorf("load: target %s: %w", t, err)
	}
	c.authorize(req)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, "", fmt.Errorf("load: target %s cannot be reached; is it running? %w", t, unwrapURL(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxModels))
	if err != nil {
		return nil, "", fmt.Errorf("load: target %s: its list of models: %w", t, err)
	}
	software = resp.Header.Get("Server")
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return nil, software, nil
	case http.StatusUnauthorized, http.StatusForbidden:
		return nil, "", fmt.Errorf("load: target %s wants an API key (status %d); give --api-key or set SHOAL_API_KEY", t, resp.StatusCode)
	default:
		return nil, "", fmt.Errorf("load: target %s answers its list of models with status %d: %s", t, resp.StatusCode, errorText(body))
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, "", fmt.Errorf("load: target %s is no OpenAI endpoint: its list of models is not one: %w", t, err)
	}
	names = make([]string, 0, len(list.Data))
	for _, m := range list.Data {
		if m.ID != "" {
			names = append(names, m.ID)
		}
	}
	return names, software, nil
}

func (c *client) authorize(r *http.Request) {
	r.Header.Set("User-Agent", "shoal-bench")
	if c.cfg.APIKey != "" {
		r.Header.Set("Authorization", "Bearer "+c.cfg.APIKey)
	}
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type chatRequest struct {
	Model     string    `json:"model"`
	Messages  []message `json:"messages"`
	MaxTokens int       `json:"max_tokens,omitempty"`
	// Temperature 0 makes the output, and so its length, the same under every set-up that is compared.
	Temperature   int            `json:"temperature"`
	Stream        bool           `json:"stream,omitempty"`
	StreamOptions *streamOptions `json:"stream_options,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

func (c *client) body(r Request) []byte {
	v := chatRequest{Model: c.model, MaxTokens: r.Output, Stream: c.cfg.Stream}
	if c.cfg.MaxTokens > 0 && (v.MaxTokens == 0 || v.MaxTokens > c.cfg.MaxTokens) {
		v.MaxTokens = c.cfg.MaxTokens
	}
	if v.Stream {
		v.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	if r.System != "" {
		v.Messages = append(v.Messages, message{"system", r.System})
	}
	v.Messages = append(v.Messages, message{"user", r.User})
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("load: a request cannot be written as JSON: %v", err)) // strings and numbers only
	}
	return b
}

// do sends one request and watches its answer. Times count from due.
func (c *client) do(run context.Context, req Request, to int, due time.Time) (res Result) {
	t := c.targets[to]
	res = Result{Group: req.Group, Target: t.Host, Peer: t.Host, Matched: peer.Unknown, Prompt: peer.Unknown,
		Cached: peer.Unknown, Output: peer.Unknown}
	defer func() {
		if res.Total == 0 {
			res.Total = time.Since(due)
		}
	}()
	ctx, cancel := context.WithTimeout(run, c.cfg.Timeout)
	defer cancel()
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, t.String()+"/v1/chat/completions", bytes.NewReader(c.body(req)))
	if err != nil {
		res.fail(Refused, err.Error())
		return res
	}
	hr.Header.Set("Content-Type", "application/json")
	hr.Close = c.fresh[to]
	c.authorize(hr)
	resp, err := c.http.Do(hr)
	if err != nil {
		res.failed(run, unwrapURL(err))
		return res
	}
	defer resp.Body.Close()
	res.Status = resp.StatusCode
	res.headers(resp.Header)
	switch {
	case resp.StatusCode != http.StatusOK:
		b, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		res.fail(Status, errorText(b))
	case !c.cfg.Stream:
		res.plain(run, resp.Body)
	case !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"):
		res.fail(BadAnswer, fmt.Sprintf("a stream was asked for, and %q came", resp.Header.Get("Content-Type")))
	default:
		res.stream(run, resp.Body, due)
	}
	return res
}

func (r *Result) headers(h http.Header) {
	if p := h.Get("X-Shoal-Peer"); p != "" {
		r.Peer = p
	}
	r.Reason = h.Get("X-Shoal-Reason")
	if n, err := strconv.ParseInt(h.Get("X-Shoal-Matched-Tokens"), 10, 64); err == nil && n >= 0 {
		r.Matched = n
	}
}

// answer is what the load generator reads of a plain answer or of a chunk, over all engines.
type answer struct {
	Choices []struct {
		Text    string `json:"text"`
		Delta   part   `json:"delta"`
		Message part   `json:"message"`
	} `json:"choices"`
	Usage *struct {
		Prompt     *int64 `json:"prompt_tokens"`
		Completion *int64 `json:"completion_tokens"`
		Details    *struct {
			Cached *int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Timings *struct { // llama.cpp, unasked
		Cached *int64 `json:"cache_n"`
		Prompt *int64 `json:"prompt_n"` // without what was cached
		Output *int64 `json:"predicted_n"`
	} `json:"timings"`
	Error  json.RawMessage `json:"error"`
	Object string          `json:"object"`
}

type part struct {
	Content   string          `json:"content"`
	Reasoning string          `json:"reasoning_content"`
	Tools     json.RawMessage `json:"tool_calls"`
}

func (p *part) empty() bool {
	return p.Content == "" && p.Reasoning == "" && (len(p.Tools) == 0 || string(p.Tools) == "null")
}

func (a *answer) content() bool {
	for i := range a.Choices {
		ch := &a.Choices[i]
		if ch.Text != "" || !ch.Delta.empty() || !ch.Message.empty() {
			return true
		}
	}
	return false
}

// failed covers both shapes of an error: {"error":{...}}, and {"object":"error",...} of older engines.
func (a *answer) failed() bool {
	return len(a.Error) > 0 && string(a.Error) != "null" || a.Object == "error"
}

// counts takes over the engine's own numbers. What usage says goes before the timings: it is what the API defines.
func (r *Result) counts(a *answer) {
	set := func(to *int64, from *int64) {
		if from != nil && *from >= 0 {
			*to = *from
		}
	}
	if t := a.Timings; t != nil && t.Cached != nil && t.Prompt != nil && *t.Cached >= 0 && *t.Prompt >= 0 {
		r.Cached, r.Prompt = *t.Cached, *t.Cached+*t.Prompt
		set(&r.Output, t.Output)
	}
	if u := a.Usage; u != nil {
		set(&r.Prompt, u.Prompt)
		set(&r.Output, u.Completion)
		if u.Details != nil {
			set(&r.Cached, u.Details.Cached)
		}
	}
}

// plain reads an answer that comes in one piece.
func (r *Result) plain(run context.Context, body io.Reader) {
	b, err := io.ReadAll(io.LimitReader(body, maxAnswer+1))
	r.FirstByte = len(b) > 0
	if err != nil {
		r.failed(run, err)
		return
	}
	if len(b) > maxAnswer {
		r.fail(BadAnswer, fmt.Sprintf("an answer of more than %d bytes", maxAnswer))
		return
	}
	var a answer
	if err := json.Unmarshal(b, &a); err != nil {
		r.fail(BadAnswer, "the answer is not JSON: "+err.Error())
		return
	}
	if a.failed() {
		r.fail(ErrorEvent, errorText(b))
		return
	}
	if len(a.Choices) == 0 {
		r.fail(BadAnswer, "the answer has no choices")
		return
	}
	r.counts(&a)
}

// stream reads an answer that comes in chunks. Only [DONE] makes it complete.
func (r *Result) stream(run context.Context, body io.Reader, due time.Time) {
	seen := &firstByte{r: body}
	defer func() { r.FirstByte = seen.any }()
	ev := newEvents(seen)
	chunks := int64(0)
	for {
		data, err := ev.next()
		if errors.Is(err, io.EOF) {
			r.fail(Truncated, "the stream ended without [DONE]")
			return
		}
		if err != nil {
			r.failed(run, err)
			return
		}
		if string(data) == "[DONE]" {
			break
		}
		var a answer
		if err := json.Unmarshal(data, &a); err != nil {
			r.fail(BadAnswer, "a chunk is not JSON: "+err.Error())
			return
		}
		if a.failed() {
			r.fail(ErrorEvent, errorText(data)) // and read on: a clean end still makes a difference to the connection
		}
		if a.content() {
			if chunks++; chunks == 1 {
				r.TTFT = time.Since(due)
			}
		}
		r.counts(&a)
	}
	r.Total = time.Since(due)
	if r.Output == peer.Unknown {
		r.Output = chunks
	}
	if r.TTFT > 0 && r.Output > 1 {
		r.TPOT = (r.Total - r.TTFT) / time.Duration(r.Output-1)
	}
	io.Copy(io.Discard, io.LimitReader(ev.r, maxErrorBody)) // so that the connection can be used again
}

// firstByte notes that something has been read.
type firstByte struct {
	r   io.Reader
	any bool
}

func (f *firstByte) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	f.any = f.any || n > 0
	return n, err
}

// errorText finds the message in an error body of the OpenAI shape, else returns the body's start.
func errorText(b []byte) string {
	var v struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	s := strings.TrimSpace(string(b))
	if json.Unmarshal(b, &v) == nil && v.Error.Message != "" {
		s = v.Error.Message
	}
	if r := []rune(s); len(r) > maxDetail {
		s = string(r[:maxDetail]) + "…"
	}
	return s
}

// unwrapURL drops the method and URL that net/http puts before an error: ours name the target themselves.
func unwrapURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
