package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// proxyFlags make this command the floor: httputil.ReverseProxy before one engine, and nothing else.
type proxyFlags struct{ listen, engine string }

func (f proxyFlags) serve(ctx context.Context) error {
	engine, err := url.Parse(f.engine)
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(engine) },
		Transport: &http.Transport{
			MaxIdleConnsPerHost: 4096,
			IdleConnTimeout:     time.Minute,
			DialContext:         (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
			DisableCompression:  true,
		},
		BufferPool: &buffers{sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}},
	}
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex() // as every correct proxy with bodies needs it
		proxy.ServeHTTP(w, r)
	})}
	go func() {
		<-ctx.Done()
		s.Close()
	}()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte  { return *b.pool.Get().(*[]byte) }
func (b *buffers) Put(p []byte) { b.pool.Put(&p) }
