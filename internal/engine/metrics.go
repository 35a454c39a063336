package engine

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"shoal/internal/peer"
)

// metrics is what a Prometheus page of an engine says that this package wants to know. Unknown counts are peer.Unknown.
type metrics struct {
	product          string
	running, waiting int
	slots            int // that can run at once
	kvPermille       int // of the KV memory that requests in flight hold
	cachePermille    int // of the prefix cache that holds anything
	blockTokens      int
	cacheTokens      int64
	epoch            peer.Epoch
}

// gauge is what a series means, whatever its engine calls it.
type gauge uint8

const (
	gRunning gauge = iota
	gWaiting
	gKV
	gCache
	gBlock
	gBlocks
	gInfo
	gCounter
	gStart
	gSlots
	gauges
)

// meaning knows a series by its name, with its first colon written as an underscore (as some exporters do) and without
// "_total" (as older versions of them do).
func meaning(name string) (g gauge, ok bool) {
	switch name {
	case "vllm_num_requests_running", "sglang_num_running_reqs", "trtllm_num_requests_running",
		"llamacpp_requests_processing", "shoal_emulated_requests_running":
		return gRunning, true
	case "vllm_num_requests_waiting", "sglang_num_queue_reqs", "trtllm_num_requests_waiting",
		"llamacpp_requests_deferred", "shoal_emulated_requests_waiting":
		return gWaiting, true
	case "vllm_kv_cache_usage_perc", "vllm_gpu_cache_usage_perc", "sglang_token_usage", "trtllm_kv_cache_utilization":
		return gKV, true
	case "shoal_emulated_cache_usage":
		return gCache, true
	case "trtllm_kv_cache_tokens_per_block":
		return gBlock, true
	case "trtllm_kv_cache_max_blocks":
		return gBlocks, true
	case "vllm_cache_config_info", "sglang_cache_config_info", "shoal_emulated_cache_config_info":
		return gInfo, true
	case "vllm_prompt_tokens", "sglang_prompt_tokens", "llamacpp_prompt_tokens", "trtllm_request_success",
		"shoal_emulated_prompt_tokens":
		return gCounter, true
	case "shoal_emulated_running_most":
		return gSlots, true
	case "process_start_time_seconds":
		return gStart, true
	}
	return 0, false
}

// readMetrics reads a page, one line at a time; a line that is not understood is passed over. Series of one name are
// summed, fractions averaged: one a data-parallel rank.
func readMetrics(page []byte) metrics {
	var sum [gauges]float64
	var n [gauges]int
	m := metrics{blockTokens: peer.Unknown, cacheTokens: peer.Unknown}
	seen := map[gauge]string{} // the first name wins: a version between old and new names shows both
	for line := range bytes.Lines(page) {
		name, labels, value, ok := series(line)
		if !ok {
			continue
		}
		g, ok := meaning(name)
		if !ok {
			continue
		}
		if first, twice := seen[g]; twice && first != name {
			continue
		}
		seen[g] = name
		if p, _, ok := strings.Cut(name, "_"); ok && p != "process" {
			m.product = p
		}
		sum[g] += value
		n[g]++
		if g == gInfo {
			m.shape(labels)
		}
	}
	m.running, m.waiting = total(sum[gRunning], n[gRunning]), total(sum[gWaiting], n[gWaiting])
	m.slots = total(sum[gSlots], n[gSlots])
	m.kvPermille, m.cachePermille = permille(sum[gKV], n[gKV]), permille(sum[gCache], n[gCache])
	if n[gBlock] > 0 && n[gBlocks] > 0 {
		m.blockTokens = total(sum[gBlock]/float64(n[gBlock]), 1)
		m.cacheTokens = int64(m.blockTokens) * int64(total(sum[gBlocks], 1))
	}
	if n[gCounter] > 0 {
		m.epoch.Counter = int64(sum[gCounter])
	}
	if n[gStart] > 0 {
		m.epoch.Start = int64(math.Round(sum[gStart] / float64(n[gStart]) * 1000))
	}
	if m.product == "shoal" {
		m.product = productEmulated
	}
	return m
}

// series splits a line into its parts: name{labels} value [timestamp].
func series(line []byte) (name string, labels []byte, value float64, ok bool) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] == '#' {
		return "", nil, 0, false
	}
	i := bytes.IndexAny(line, "{ \t")
	if i <= 0 {
		return "", nil, 0, false
	}
	head, rest := line[:i], line[i:]
	if rest[0] == '{' {
		end := labelsEnd(rest)
		if end < 0 {
			return "", nil, 0, false
		}
		labels, rest = rest[1:end], rest[end+1:]
	}
	f := bytes.Fields(rest)
	if len(f) == 0 {
		return "", nil, 0, false
	}
	value, err := strconv.ParseFloat(string(f[0]), 64)
	if err != nil || math.IsNaN(value) || value < 0 || value > maxTokens {
		return "", nil, 0, false
	}
	name = strings.Replace(string(head), ":", "_", 1)
	return strings.TrimSuffix(name, "_total"), labels, value, true
}

// labelsEnd finds the closing brace, outside quotation marks; -1 without one.
func labelsEnd(b []byte) int {
	quoted := false
	for i := 1; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '}' && !quoted:
			return i
		}
	}
	return -1
}

// shape reads the cache's block size and number of blocks from the labels of an info series; the blocks of several ranks
// add up.
func (m *metrics) shape(labels []byte) {
	size := label(labels, "block_size", "page_size")
	blocks := label(labels, "num_gpu_blocks", "num_pages")
	if size <= 0 {
		return
	}
	m.blockTokens = size
	if blocks > 0 {
		m.cacheTokens = max(m.cacheTokens, 0) + int64(size)*int64(blocks)
	}
}

// label is the whole number that the first of the labels has; Unknown without.
func label(labels []byte, names ...string) int {
	for _, name := range names {
		key := []byte(name + `="`)
		for at := 0; ; {
			i := bytes.Index(labels[at:], key)
			if i < 0 {
				break
			}
			i += at
			at = i + len(key)
			if i > 0 && labels[i-1] != ',' && labels[i-1] != ' ' { // the end of a longer name
				continue
			}
			v, _, _ := bytes.Cut(labels[at:], []byte{'"'})
			if n, err := strconv.ParseInt(string(v), 10, 32); err == nil && n >= 0 {
				return int(n)
			}
		}
	}
	return peer.Unknown
}

func total(sum float64, n int) int {
	if n == 0 {
		return peer.Unknown
	}
	return int(min(math.Round(sum), maxTokens))
}

func permille(sum float64, n int) int {
	if n == 0 {
		return peer.Unknown
	}
	return int(min(math.Round(sum/float64(n)*1000), 1000))
}
