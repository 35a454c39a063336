package engine

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"

	"github.com/valyala/fastjson"
	"github.com/zeebo/xxh3"
)

func seedOf(b []byte) uint64 { return xxh3.Hash(b) }

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	b := append([]byte(`{"object":"list","data":[{"id":`), quote(nil, s.cfg.Model)...)
	b = append(append(b, `,"object":"model","created":`...), s.created...)
	b = append(b, `,"owned_by":"`+productEmulated+`","parent":null,"max_model_len":`...)
	answerJSON(w, append(strconv.AppendInt(b, int64(s.cfg.Context), 10), "}]}"...))
}

func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	st := s.Stats()
	var b []byte
	add := func(kind, name, help string, value float64) {
		b = fmt.Appendf(b, "# HELP shoal_emulated_%[1]s %[2]s Emulated: nothing is computed.\n# TYPE shoal_emulated_%[1]s %[3]s\nshoal_emulated_%[1]s %[4]s\n",
			name, help, kind, strconv.FormatFloat(value, 'g', -1, 64))
	}
	add("gauge", "requests_running", "Requests in the batch.", float64(st.Running))
	add("gauge", "requests_waiting", "Requests in the queue.", float64(st.Waiting))
	add("gauge", "running_most", "Requests that the batch takes.", float64(s.cfg.Running))
	add("gauge", "cache_usage", "Share of the cache's blocks that hold anything.", float64(st.Blocks)/float64(st.Capacity))
	add("counter", "requests_total", "Requests taken in.", float64(st.Requests))
	add("counter", "prompt_tokens_total", "Prompt tokens of started requests.", float64(st.PromptTokens))
	add("counter", "prompt_tokens_cached_total", "Prompt tokens found in the cache.", float64(st.CachedTokens))
	add("counter", "output_tokens_total", "Tokens of answers.", float64(st.OutputTokens))
	add("counter", "evicted_blocks_total", "Blocks evicted.", float64(st.Evicted))
	b = fmt.Appendf(b, "shoal_emulated_cache_config_info{block_size=\"%d\",num_gpu_blocks=\"%d\"} 1\n", s.cfg.BlockTokens, st.Capacity)
	b = fmt.Appendf(b, "process_start_time_seconds %.6f\n", float64(s.born.UnixMicro())/1e6)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	w.Write(b)
}

// tokenize cuts a text into this engine's tokens: pieces of equal size, whose bytes are their number.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	j := s.job()
	defer s.free(j)
	if err := j.read(w, r); err != nil {
		answerBad(w, err)
		return
	}
	v, err := j.parser.ParseBytes(j.body)
	if err != nil {
		answerBad(w, bad("", "the body is not JSON"))
		return
	}
	text := v.GetStringBytes("prompt")
	if text == nil {
		text = v.GetStringBytes("content")
	}
	if j.rendered = append(j.rendered[:0], text...); len(v.GetArray("messages")) > 0 {
		j.rendered = j.rendered[:0]
		if err := j.renderChat(v); err != nil {
			answerBad(w, err)
			return
		}
	}
	tokens := []uint64{}
	for b := j.rendered; len(b) > 0; {
		n := min(s.cfg.TokenBytes, len(b))
		var piece [8]byte
		copy(piece[:], b[:n])
		tokens = append(tokens, binary.LittleEndian.Uint64(piece[:])&(1<<53-1)) // as far as JSON numbers go
		b = b[n:]
	}
	out, _ := json.Marshal(map[string]any{"count": len(tokens), "max_model_len": s.cfg.Context, "tokens": tokens, "emulated": true})
	answerJSON(w, out)
}

const (
	embeddingSize = 256
	maxInputs     = 2048
)

// embeddings answers with vectors that depend on nothing but the text, and mean nothing.
func (s *Server) embeddings(w http.ResponseWriter, r *http.Request) {
	j := s.job()
	defer s.free(j)
	if err := j.read(w, r); err != nil {
		answerBad(w, err)
		return
	}
	v, err := j.parser.ParseBytes(j.body)
	if err != nil {
		answerBad(w, bad("", "the body is not JSON"))
		return
	}
	if model := string(v.GetStringBytes("model")); model != s.cfg.Model {
		answerBad(w, &badRequest{http.StatusNotFound, "model", fmt.Sprintf("the model %q does not exist here; there is %q", model, s.cfg.Model)})
		return
	}
	var inputs [][]byte
	switch in := v.Get("input"); {
	case in != nil && in.Type() == fastjson.TypeString:
		inputs = append(inputs, in.GetStringBytes())
	case in != nil && in.Type() == fastjson.TypeArray:
		for _, one := range in.GetArray() {
			if one.Type() == fastjson.TypeString {
				inputs = append(inputs, one.GetStringBytes())
			} else {
				inputs = append(inputs, one.MarshalTo(nil))
			}
		}
	}
	if len(inputs) == 0 || len(inputs) > maxInputs {
		answerBad(w, bad("input", "input is missing, empty, or has more than %d texts", maxInputs))
		return
	}
	answerJSON(w, s.vectors(inputs, string(v.GetStringBytes("encoding_format")) == "base64"))
}

func (s *Server) vectors(inputs [][]byte, base64 bool) []byte {
	type datum struct {
		Object    string `json:"object"`
		Index     int    `json:"index"`
		Embedding any    `json:"embedding"`
	}
	data, tokens := make([]datum, len(inputs)), 0
	for i, in := range inputs {
		v := vector(seedOf(in))
		data[i] = datum{"embedding", i, v}
		if base64 {
			raw, _ := binary.Append(nil, binary.LittleEndian, v) // of a fixed size
			data[i].Embedding = raw
		}
		tokens += max(len(in)/s.cfg.TokenBytes, 1)
	}
	b, _ := json.Marshal(map[string]any{"object": "list", "model": s.cfg.Model, "emulated": true, "data": data,
		"usage": map[string]int{"prompt_tokens": tokens, "total_tokens": tokens}})
	return b
}

// vector is of length 1.
func vector(seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 0))
	v, sum := make([]float32, embeddingSize), 0.0
	for i := range v {
		x := r.NormFloat64()
		v[i] = float32(x)
		sum += x * x
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(sum))
	}
	return v
}
