package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// adminClient asks an agent's admin API: over loopback (host:port) or over its unix socket (a path).
type adminClient struct {
	addrs []string // tried in order, until one connects
	wait  time.Duration
}

// newAdminClient asks at addr; empty: where an agent of this machine listens by default.
func newAdminClient(addr string, wait time.Duration) *adminClient {
	c := &adminClient{addrs: defaultAdmins(), wait: wait}
	if addr != "" {
		c.addrs = []string{strings.TrimSuffix(strings.TrimPrefix(addr, "http://"), "/")}
	}
	return c
}

const adminFlag = "`address` of an agent's admin API: host:port, or the path of its socket"

// call sends in (nil: a GET) and reads the answer into out.
func (c *adminClient) call(ctx context.Context, path string, in, out any) error {
	var errs []error
	for _, addr := range c.addrs {
		err := c.at(ctx, addr, path, in, out)
		var op *net.OpError
		if err == nil || !errors.As(err, &op) || op.Op != "dial" {
			return err
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("no agent answers at %s: %w\nIs one running? Start it with `shoal agent`, or name its admin address with --admin", strings.Join(c.addrs, " or "), errors.Join(errs...))
}

func (c *adminClient) at(ctx context.Context, addr, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	t := &http.Transport{DisableKeepAlives: true}
	host := addr
	if strings.Contains(addr, "/") {
		host = "agent"
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", addr)
		}
	}
	method, body := http.MethodGet, io.Reader(nil)
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		method, body = http.MethodPost, bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+host+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the agent at %s: %s: %s", addr, res.Status, strings.TrimSpace(string(b)))
	}
	return json.Unmarshal(b, out)
}
