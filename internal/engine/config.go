package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"
)

// The adapters.
const (
	Auto     = ""         // recognise the engine when it first answers
	OpenAI   = "openai"   // anything that speaks the API
	LlamaCpp = "llamacpp" // llama.cpp's own server
	Emulated = "emulated" // package emulate behind HTTP
)

// Config says where an engine is and how long to wait for it. Start from Defaults.
type Config struct {
	// Adapter is Auto, OpenAI, LlamaCpp or Emulated.
	Adapter string
	// URL of the engine, up to what comes before "/v1": "http://127.0.0.1:8000", "https://gpu3/llm". A trailing "/v1" is
	// taken off.
	URL string
	// APIKey is sent as a bearer token in place of the client's own. Empty: the client's Authorization goes on as it is.
	APIKey string
	TLS    TLS
	// DialTimeout bounds connecting, TLS included. Higher: slow networks pass. Lower: a vanished machine is noticed sooner.
	DialTimeout time.Duration
	// FirstByte bounds the silence between the request and the first byte of the answer. Long prefills and plain answers
	// are rightly silent, so it is long; an engine that is gone is seen by its probe, not by this.
	FirstByte time.Duration
	// Silence bounds the time between two reads of an answer that has begun. Lower: an engine that hangs with streams open
	// is noticed sooner. Higher: slow decoding passes.
	Silence time.Duration
	// IdleConns is how many idle connections are kept. Lower: more dialling under bursts. Higher: more descriptors.
	IdleConns int
	// IdleTimeout is how long a connection is kept unused. Keep it below the engine's own (vLLM and llama.cpp: 5 s), since
	// a connection that the engine closes in the moment of reuse costs a second try.
	IdleTimeout time.Duration
	// MaxAnswer bounds, in bytes, an answer that is assembled in memory, and MaxHeader the head of a response.
	MaxAnswer int
	MaxHeader int
	// Dial replaces the TCP dialler, for tests and for sockets of other kinds. Nil: TCP with keep-alive and no delay.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// TLS is how the engine's certificate is checked.
type TLS struct {
	CAFile     string // PEM; empty: the system's authorities
	ServerName string // empty: the host of the URL
	Insecure   bool   // take any certificate: whoever is in between reads everything
}

// Defaults is what fits an engine on this machine or in the same rack.
func Defaults() Config {
	return Config{
		DialTimeout: 5 * time.Second,
		FirstByte:   10 * time.Minute,
		Silence:     time.Minute,
		IdleConns:   1024,
		IdleTimeout: 4 * time.Second,
		MaxAnswer:   32 << 20,
		MaxHeader:   64 << 10,
	}
}

// Validate reports the first thing that is wrong, by the field's name.
func (c *Config) Validate() error {
	switch c.Adapter {
	case Auto, OpenAI, LlamaCpp, Emulated:
	default:
		return fmt.Errorf("engine: adapter %q is not known; it may be %q, %q, %q, or empty to find out", c.Adapter, OpenAI, LlamaCpp, Emulated)
	}
	if _, err := c.base(); err != nil {
		return err
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"dial_timeout", c.DialTimeout}, {"first_byte", c.FirstByte}, {"silence", c.Silence}, {"idle_timeout", c.IdleTimeout}} {
		if d.d <= 0 {
			return fmt.Errorf("engine: %s is %v; give a time above 0", d.name, d.d)
		}
	}
	if c.IdleConns < 0 || c.MaxAnswer <= 0 || c.MaxHeader <= 0 {
		return errors.New("engine: idle_conns must be 0 or more, max_answer and max_header more than 0")
	}
	if c.TLS.Insecure && c.TLS.CAFile != "" {
		return errors.New("engine: tls has both ca_file and insecure; leave one out")
	}
	return nil
}

// base is the checked URL, without a trailing slash or "/v1".
func (c *Config) base() (*url.URL, error) {
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("engine: url: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return nil, fmt.Errorf("engine: url %q: give it as http://HOST:PORT or https://HOST:PORT", u.Redacted())
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("engine: url %q may not have a user, a query or a fragment; a key goes into api_key", u.Redacted())
	}
	return u, nil
}

// New makes the engine that c describes. It does not connect: an engine that is not up yet is found by its Probe, and
// with Auto so is what it is.
func New(c Config) (Engine, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Adapter == Auto {
		if _, err := newClient(c); err != nil { // what is wrong with the files of c.TLS is said now
			return nil, err
		}
		return &auto{cfg: c}, nil
	}
	return build(c, c.Adapter, "")
}

func build(c Config, adapter, product string) (Engine, error) {
	switch adapter {
	case LlamaCpp:
		return newLlamaCpp(c)
	case Emulated:
		product = productEmulated
	}
	return newOpenAI(c, adapter, product)
}
