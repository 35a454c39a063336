package study

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Field is one setting of a scenario by its name: that of a flag, of a line in a scenario file, and of what a sweep changes.
type Field struct {
	Name string
	Help string
	Bool bool
	Get  func(*Scenario) string
	set  func(*Scenario, string) error
}

// Set sets it from text. What is wrong with a value alone is said here; what does not go together, by Scenario.Validate.
func (f *Field) Set(s *Scenario, text string) error {
	if err := f.set(s, strings.TrimSpace(text)); err != nil {
		return fmt.Errorf("study: %s is %.40q: %w", f.Name, text, err)
	}
	return nil
}

// FieldByName is the field that is called so; nil where there is none.
func FieldByName(name string) *Field {
	for _, f := range Fields() {
		if f.Name == name {
			return &f
		}
	}
	return nil
}

// Fields are all settings, in the order in which they are shown.
func Fields() []Field {
	return []Field{
		text("model", "of the network: fluid or packets", func(s *Scenario) *string { return &s.Model }),
		text("transport", "of packets: cc12 (a window) or dcqcn", func(s *Scenario) *string { return &s.Transport }),
		number("payload", "bytes of a packet without its headers", func(s *Scenario) *int { return &s.Payload }),
		number("leaves", "leaf switches (of a pod)", func(s *Scenario) *int { return &s.Shape.Leaves }),
		number("hosts", "hosts at each leaf", func(s *Scenario) *int { return &s.Shape.Hosts }),
		number("spines", "spine switches (of a pod)", func(s *Scenario) *int { return &s.Shape.Spines }),
		number("pods", "2 and more: three tiers", func(s *Scenario) *int { return &s.Shape.Pods }),
		number("cores", "core switches, with two pods and more", func(s *Scenario) *int { return &s.Shape.Cores }),
		number("rate", "of every link, in bit/s; below 100 Gb/s sizes shrink with it", func(s *Scenario) *int64 { return &s.Shape.Rate }),
		duration("link-delay", "of every cable", func(s *Scenario) *time.Duration { return &s.Shape.Delay }),

		number("requests", "transfers of one run", func(s *Scenario) *int { return &s.Workload.Requests }),
		real("load", "multiplies rate and requests: for fabrics larger than the paper's", func(s *Scenario) *float64 { return &s.Load }),
		number("min-tokens", "of a prompt", func(s *Scenario) *int { return &s.Workload.MinTokens }),
		number("max-tokens", "of a prompt", func(s *Scenario) *int { return &s.Workload.MaxTokens }),
		real("zipf", "exponent of the prompts' lengths, below 1", func(s *Scenario) *float64 { return &s.Workload.Skew }),
		number("token-bytes", "KV cache of one token", func(s *Scenario) *int64 { return &s.Workload.TokenBytes }),
		duration("prefill", "before a transfer, part of TTFT", func(s *Scenario) *time.Duration { return &s.Prefill }),
		duration("decode-step", "after a transfer, part of TTFT", func(s *Scenario) *time.Duration { return &s.DecodeStep }),

		number("scale", "10: sizes and all times of the control plane / 10, arrivals x 10; fewer packets, about the same result", func(s *Scenario) *int64 { return &s.Control.Scale }),
		duration("delay", "of a control message", func(s *Scenario) *time.Duration { return &s.Control.Delay }),
		duration("jitter", "up to so much more for each message", func(s *Scenario) *time.Duration { return &s.Control.Jitter }),
		real("loss", "part of the control messages that get lost", func(s *Scenario) *float64 { return &s.Control.Loss }),
		duration("skew", "clocks are wrong by up to this", func(s *Scenario) *time.Duration { return &s.Control.Skew }),
		flag("in-fabric", "control messages travel in the data fabric", func(s *Scenario) *bool { return &s.Control.InFabric }),
		duration("round", "between two rounds of anti-entropy", func(s *Scenario) *time.Duration { return &s.Control.Round }),
		duration("notice", "how long before its bytes are ready a transfer is announced", func(s *Scenario) *time.Duration { return &s.Control.Notice }),
		number("chunk", "bytes after which a transfer may change its path", func(s *Scenario) *int64 { return &s.Control.Chunk }),
		duration("renew", "how often a sender says how far it is", func(s *Scenario) *time.Duration { return &s.Control.Renew }),
		duration("lease", "of a reservation", func(s *Scenario) *time.Duration { return &s.Control.Reserve.Lease }),
		number("min-split", "bytes from which on the policy split splits", func(s *Scenario) *int64 { return &s.Control.Reserve.MinSplit }),
		number("legs", "paths over which it does", func(s *Scenario) *int { return &s.Control.Reserve.Legs }),
		number("moves", "of one reservation, for conflicts that it lost", func(s *Scenario) *int { return &s.Control.Reserve.Moves }),
		number("capacity", "of links of which the hosts do not know it, in bit/s", func(s *Scenario) *int64 { return &s.Control.Reserve.Capacity }),
		number("aging", "shoal: thousandths of a second of waiting that weigh as much as a second of length", func(s *Scenario) *int64 { return &s.Control.Reserve.Aging }),
		duration("max-wait", "shoal: age from which a waiter keeps later ones off its hosts' links", func(s *Scenario) *time.Duration { return &s.Control.Reserve.MaxWait }),
		duration("give-up", "shoal: age from which a waiter starts without its turn", func(s *Scenario) *time.Duration { return &s.Control.Reserve.GiveUp }),
		duration("max-delay", "shoal: control delay up to which transfers wait for their turn", func(s *Scenario) *time.Duration { return &s.Control.Reserve.MaxDelay }),
		number("correct", "shoal: thousandths of its length by which a predicted end may be wrong", func(s *Scenario) *int64 { return &s.Control.Reserve.Correct }),
		number("max-slowdown", "shoal: thousandths of the predicted time above which least decides for a while", func(s *Scenario) *int64 { return &s.Control.Reserve.MaxSlowdown }),
		duration("distrust", "shoal: for how long it does", func(s *Scenario) *time.Duration { return &s.Control.Reserve.Distrust }),
		text("hosts-believe", "of the switches' hashes: truth, wrong-seed or nothing", func(s *Scenario) *string { return &s.Believe }),
		flag("any-destination", "a transfer may go to any receiving host; the sender takes the least loaded", func(s *Scenario) *bool { return &s.Control.AnyDestination }),
		real("mice", "short flows of which no policy knows, as a part of the offered bytes", func(s *Scenario) *float64 { return &s.Control.Mice.Share }),
		number("mice-bytes", "of one", func(s *Scenario) *int64 { return &s.Control.Mice.Bytes }),
		text("fail", "switch that goes down (spine1, say); empty: none", func(s *Scenario) *string { return &s.Control.Failure.Switch }),
		duration("fail-at", "when it does", func(s *Scenario) *time.Duration { return &s.Control.Failure.At }),
		duration("fail-converge", "after which the other switches avoid it", func(s *Scenario) *time.Duration { return &s.Control.Failure.Converge }),
		duration("fail-learn", "after which the hosts know", func(s *Scenario) *time.Duration { return &s.Control.Failure.Learn }),
		duration("hedera", "between two re-assignments of that baseline", func(s *Scenario) *time.Duration { return &s.Control.Hedera }),
		duration("sample", "between two looks at spines and queues, in the runs of the first seed; 0: none", func(s *Scenario) *time.Duration { return &s.Control.Sample }),
	}
}

func text(name, help string, at func(*Scenario) *string) Field {
	return Field{Name: name, Help: help, Get: func(s *Scenario) string { return *at(s) },
		set: func(s *Scenario, v string) error { *at(s) = v; return nil }}
}

func number[T int | int64](name, help string, at func(*Scenario) *T) Field {
	return Field{Name: name, Help: help, Get: func(s *Scenario) string { return strconv.FormatInt(int64(*at(s)), 10) },
		set: func(s *Scenario, v string) error {
			n, err := strconv.ParseInt(strings.ReplaceAll(v, "_", ""), 10, 64)
			if err != nil {
				return fmt.Errorf("give a whole number")
			}
			*at(s) = T(n)
			return nil
		}}
}

func real(name, help string, at func(*Scenario) *float64) Field {
	return Field{Name: name, Help: help, Get: func(s *Scenario) string { return strconv.FormatFloat(*at(s), 'g', -1, 64) },
		set: func(s *Scenario, v string) error {
			n, err := strconv.ParseFloat(v, 64)
			if err != nil {
				return fmt.Errorf("give a number")
			}
			*at(s) = n
			return nil
		}}
}

func duration(name, help string, at func(*Scenario) *time.Duration) Field {
	return Field{Name: name, Help: help, Get: func(s *Scenario) string { return at(s).String() },
		set: func(s *Scenario, v string) error {
			d, err := time.ParseDuration(v)
			if err != nil {
				return fmt.Errorf("give a time with its unit, as 5ms")
			}
			*at(s) = d
			return nil
		}}
}

func flag(name, help string, at func(*Scenario) *bool) Field {
	return Field{Name: name, Help: help, Bool: true, Get: func(s *Scenario) string { return strconv.FormatBool(*at(s)) },
		set: func(s *Scenario, v string) error {
			b, err := strconv.ParseBool(v)
			if err != nil {
				return fmt.Errorf("give true or false")
			}
			*at(s) = b
			return nil
		}}
}
