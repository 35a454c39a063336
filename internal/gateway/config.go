package gateway

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// MaxKeys bounds the API keys: each request compares with all of them.
const MaxKeys = 1024

// Config is how the gateway treats its clients. Start from Defaults.
type Config struct {
	// Keys that clients may present as bearer tokens. Empty: everyone who can connect is served, as the one tenant "".
	Keys []Key
	// Isolate gives every tenant a part of the prefix cache of its own: the gateway derives a cache_salt from Secret, the
	// tenant and the client's own cache_salt, and puts it into the body. It works only for models that are served by
	// engines that keep salts apart; others stay shared. On: no tenant can tell from the times of its answers what
	// another has asked. Off: tenants that share prompts share their cache, and headers about it are withheld from all.
	Isolate bool
	// Secret is what salts are derived from. All agents of a shoal need the same, or a tenant's prefixes are not found
	// again through another agent. Required with Isolate.
	Secret string
	// PassAuthorization hands the client's Authorization on to the engine. Leave it off where clients present keys of
	// this gateway.
	PassAuthorization bool

	// MaxBody bounds a request's body, in bytes. Raise it for many images in one prompt; each request in flight holds its body.
	MaxBody int
	// MaxHeader bounds a request's header, in bytes.
	MaxHeader int
	// MaxRequests bounds the requests in flight, waiting ones included. Beyond it clients get 503.
	MaxRequests int
	// MaxPlain bounds, in bytes, how much of a plain answer is held back until it is complete, so that a failure can
	// still be tried elsewhere. A longer one begins before it is complete, and what fails then is cut off.
	MaxPlain int

	// HeaderTime bounds the time in which a request's header must come, and BodyTime its body. Lower: slow clients hold
	// less. Higher: large bodies over slow links pass.
	HeaderTime, BodyTime time.Duration
	// IdleTime is how long a connection is kept between requests.
	IdleTime time.Duration
	// StallTime bounds how long a client may leave its answer unread. Then it is treated as gone, and the engine is freed.
	StallTime time.Duration
}

// Key is one API key.
type Key struct {
	// Key or File, which holds the key alone; white space around it does not count.
	Key, File string
	// Tenant to whom the key belongs. Several keys may belong to one.
	Tenant string
}

// Defaults serves everyone, within limits that fit long prompts with images.
func Defaults() Config {
	return Config{
		MaxBody:     32 << 20,
		MaxHeader:   64 << 10,
		MaxRequests: 10_000,
		MaxPlain:    1 << 20,
		HeaderTime:  10 * time.Second,
		BodyTime:    time.Minute,
		IdleTime:    2 * time.Minute,
		StallTime:   time.Minute,
	}
}

// Validate reports the first thing that is wrong, by the field's name. Files are read by New.
func (c *Config) Validate() error {
	if len(c.Keys) > MaxKeys {
		return fmt.Errorf("gateway: keys has %d entries; at most %d", len(c.Keys), MaxKeys)
	}
	for i, k := range c.Keys {
		if (k.Key == "") == (k.File == "") {
			return fmt.Errorf("gateway: keys[%d]: give either key or file", i)
		}
		if len(k.Tenant) > 256 {
			return fmt.Errorf("gateway: keys[%d]: tenant has %d bytes; at most 256", i, len(k.Tenant))
		}
	}
	if c.Isolate && c.Secret == "" {
		return errors.New("gateway: isolate needs secret, the same at every agent of the shoal")
	}
	if c.Isolate && len(c.Keys) == 0 {
		return errors.New("gateway: isolate needs keys: without them there is only one tenant")
	}
	for _, n := range []struct {
		name     string
		value    int
		min, max int
	}{
		{"max_body", c.MaxBody, 1, 1 << 30}, {"max_header", c.MaxHeader, 4 << 10, 1 << 20},
		{"max_requests", c.MaxRequests, 1, 1 << 20}, {"max_plain", c.MaxPlain, 0, 1 << 30},
	} {
		if n.value < n.min || n.value > n.max {
			return fmt.Errorf("gateway: %s is %d; give %d to %d", n.name, n.value, n.min, n.max)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"header_time", c.HeaderTime}, {"body_time", c.BodyTime}, {"idle_time", c.IdleTime}, {"stall_time", c.StallTime}} {
		if d.value <= 0 {
			return fmt.Errorf("gateway: %s is %v; give a time above 0", d.name, d.value)
		}
	}
	return nil
}

// read gives the key itself.
func (k *Key) read() (string, error) {
	if k.File == "" {
		return k.Key, nil
	}
	b, err := os.ReadFile(k.File)
	if err != nil {
		return "", fmt.Errorf("gateway: key file: %w", err)
	}
	key := strings.TrimSpace(string(b))
	if key == "" {
		return "", fmt.Errorf("gateway: key file %s is empty", k.File)
	}
	return key, nil
}
