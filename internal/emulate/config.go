package emulate

import (
	"fmt"
	"time"
)

// Config is the shape and the speed of an emulated engine. Start from Defaults; all times may be 0, which makes an engine
// that answers at once, to measure what stands in front of it.
type Config struct {
	// Model is the name that it serves.
	Model string `yaml:"model"`
	// Context bounds prompt and answer of one request together, in tokens.
	Context int `yaml:"context"`
	// Running bounds the sequences of one step. Lower: less waiting within a step, more in the queue.
	Running int `yaml:"running"`
	// Waiting bounds the queue: requests are refused while Running and Waiting together are in the engine.
	Waiting int `yaml:"waiting"`
	// StepTokens bounds the tokens of one step, those of decoding sequences first: long prefills go in pieces of it. Lower:
	// decoding sequences wait less for others' prefills. Higher: prompts are done in fewer steps.
	StepTokens int `yaml:"step_tokens"`
	// CacheTokens is the KV memory, of running sequences and of prefixes kept, and BlockTokens the size of its blocks.
	CacheTokens int `yaml:"cache_tokens"`
	BlockTokens int `yaml:"block_tokens"`
	// Overhead is the time before a request can be scheduled: HTTP, templates, tokenising.
	Overhead time.Duration `yaml:"overhead"`
	// Prefill is the time of one uncached prompt token.
	Prefill time.Duration `yaml:"prefill"`
	// Decode is the time that a step takes for having decoding sequences at all, and DecodeEach for each of them.
	Decode     time.Duration `yaml:"decode"`
	DecodeEach time.Duration `yaml:"decode_each"`
	// Output is how many tokens an answer has whose request sets no limit.
	Output int `yaml:"output"`
	// TokenBytes is the size of a token, of prompts and answers.
	TokenBytes int `yaml:"token_bytes"`
}

// Defaults resembles a model of 8 billion parameters on one GPU: 10,000 prompt tokens a second, 10 ms a step.
func Defaults() Config {
	return Config{
		Model:       "emulated",
		Context:     131072,
		Running:     64,
		Waiting:     1024,
		StepTokens:  2048,
		CacheTokens: 262144,
		BlockTokens: 16,
		Overhead:    2 * time.Millisecond,
		Prefill:     100 * time.Microsecond,
		Decode:      10 * time.Millisecond,
		DecodeEach:  50 * time.Microsecond,
		Output:      64,
		TokenBytes:  4,
	}
}

// Instant is Defaults without any delay.
func Instant() Config {
	c := Defaults()
	c.Overhead, c.Prefill, c.Decode, c.DecodeEach = 0, 0, 0, 0
	return c
}

// Bounds of what Validate takes.
const (
	maxTokens = 1 << 30
	maxTime   = time.Hour
)

// Validate reports the first field that makes no engine.
func (c *Config) Validate() error {
	if c.Model == "" {
		return fmt.Errorf("emulate: model is empty; give it a name")
	}
	for _, f := range []struct {
		name     string
		v, least int
	}{
		{"context", c.Context, 2}, {"running", c.Running, 1}, {"waiting", c.Waiting, 0}, {"step_tokens", c.StepTokens, 1},
		{"cache_tokens", c.CacheTokens, 1}, {"block_tokens", c.BlockTokens, 1}, {"output", c.Output, 1}, {"token_bytes", c.TokenBytes, 1},
	} {
		if f.v < f.least || f.v > maxTokens {
			return fmt.Errorf("emulate: %s is %d; it may be %d to %d", f.name, f.v, f.least, maxTokens)
		}
	}
	if c.TokenBytes > 64 {
		return fmt.Errorf("emulate: token_bytes is %d; it may be 1 to 64", c.TokenBytes)
	}
	if c.CacheTokens < c.BlockTokens {
		return fmt.Errorf("emulate: cache_tokens is %d, less than one block of %d", c.CacheTokens, c.BlockTokens)
	}
	if c.StepTokens < c.Running {
		return fmt.Errorf("emulate: step_tokens is %d, less than running (%d): some sequence would never get its token", c.StepTokens, c.Running)
	}
	for _, f := range []struct {
		name string
		v    time.Duration
	}{{"overhead", c.Overhead}, {"prefill", c.Prefill}, {"decode", c.Decode}, {"decode_each", c.DecodeEach}} {
		if f.v < 0 || f.v > maxTime {
			return fmt.Errorf("emulate: %s is %v; it may be 0 to %v", f.name, f.v, maxTime)
		}
	}
	return nil
}
