package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"shoal/internal/emulate"
)

// Server is an emulated engine behind HTTP: package emulate's model with a real clock. It speaks the OpenAI API, computes
// nothing, and says so: in the list of models, in a header of every response, in its metrics, and at the beginning of
// every answer. Every life of it has an epoch, as an engine's process has.
type Server struct {
	cfg     emulate.Config
	http    *http.Server
	mux     *http.ServeMux
	born    time.Time
	created string // Unix seconds, as they stand in answers
	kick    chan struct{}
	done    chan struct{}
	jobs    sync.Pool // of *job

	mu     sync.Mutex
	model  *emulate.Engine
	open   map[uint64]*sequence
	lastID uint64
	events []emulate.Event
	wake   time.Duration // when the clock is set to call; noWake: it is not
	closed bool
}

// EmulatedHeader is in every response of an emulated engine.
const EmulatedHeader = "X-Shoal-Emulated"

const (
	noWake  = time.Duration(1<<63 - 1)
	maxBody = 64 << 20
)

// sequence is one request from its handler's side. The server's lock guards all but news.
type sequence struct {
	news   chan struct{} // something has happened
	tokens int
	cached int
	ended  bool
}

// NewServer makes an emulated engine. Serve runs it. It is an http.Handler too, which then needs a Run.
func NewServer(cfg emulate.Config) (*Server, error) {
	m, err := emulate.New(cfg)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, model: m, born: time.Now(), kick: make(chan struct{}, 1), done: make(chan struct{}),
		open: map[uint64]*sequence{}, wake: noWake}
	s.created = strconv.FormatInt(s.born.Unix(), 10)
	s.mux = http.NewServeMux()
	s.mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { s.complete(w, r, true) })
	s.mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { s.complete(w, r, false) })
	s.mux.HandleFunc("POST /v1/embeddings", s.embeddings)
	s.mux.HandleFunc("POST /tokenize", s.tokenize)
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("GET /metrics", s.metrics)
	s.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, []byte(`{}`)) })
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answerError(w, http.StatusNotFound, "NotFoundError", "", "there is no such page")
	})
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 75 * time.Second}
	return s, nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header()[EmulatedHeader] = emulatedValue
	s.mux.ServeHTTP(w, r)
}

var emulatedValue = []string{"true"}

// Serve accepts connections on l until Close, and closes l. It returns nil after Close.
func (s *Server) Serve(l net.Listener) error {
	stop := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(stop)
	}()
	err := s.http.Serve(l)
	close(stop)
	<-ended
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("engine: emulated: %w", err)
}

// Close ends Serve and cuts every connection, as the end of an engine's process does.
func (s *Server) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	s.mu.Unlock()
	return s.http.Close()
}

// Run lets time pass in the model until stop is closed. Serve calls it; only a Server that is used as a handler needs it.
func (s *Server) Run(stop <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-s.kick:
		case <-timer.C:
		}
		s.mu.Lock()
		s.advance()
		at, ok := s.model.Next()
		if s.wake = noWake; ok {
			s.wake = at
		}
		s.mu.Unlock()
		if ok {
			timer.Reset(at - time.Since(s.born))
		}
	}
}

// advance lets time pass and tells the handlers what has happened. The lock is held.
func (s *Server) advance() {
	s.events = s.model.Advance(time.Since(s.born), s.events[:0])
	for i := range s.events {
		e := &s.events[i]
		q := s.open[e.ID]
		if q == nil {
			continue
		}
		q.tokens, q.cached = e.Token, e.Cached
		if e.Kind == emulate.Done {
			q.ended = true
			delete(s.open, e.ID)
		}
		select {
		case q.news <- struct{}{}:
		default:
		}
	}
}

// submit takes a request into the model. What it leads to at once has happened when submit returns.
func (s *Server) submit(r emulate.Request) (*sequence, uint64, error) {
	q := &sequence{news: make(chan struct{}, 1)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastID++
	r.ID = s.lastID
	s.advance()
	if err := s.model.Submit(time.Since(s.born), r); err != nil {
		return nil, 0, err
	}
	s.open[r.ID] = q
	s.advance()
	if at, ok := s.model.Next(); ok && at < s.wake {
		s.wake = at // the clock will set it right
		select {
		case s.kick <- struct{}{}:
		default:
		}
	}
	return q, r.ID, nil
}

// cancel ends a request that nobody waits for.
func (s *Server) cancel(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
	s.model.Cancel(id)
}

// wait returns when more than sent tokens are there, or all of them.
func (s *Server) wait(ctx context.Context, q *sequence, sent int) (tokens, cached int, ended bool, err error) {
	for {
		s.mu.Lock()
		tokens, cached, ended = q.tokens, q.cached, q.ended
		s.mu.Unlock()
		if tokens > sent || ended {
			return tokens, cached, ended, nil
		}
		select {
		case <-q.news:
		case <-ctx.Done():
			return 0, 0, false, ctx.Err()
		case <-s.done:
			return 0, 0, false, http.ErrServerClosed
		}
	}
}

// Stats tells the model's counts.
func (s *Server) Stats() emulate.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	return s.model.Stats()
}
