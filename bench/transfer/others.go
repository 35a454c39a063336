package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// runIperf3 runs its server and its client once.
func runIperf3(ctx context.Context, path string, streams int, total int64) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	port, err := freePort()
	if err != nil {
		return sample{}, err
	}
	server := exec.CommandContext(ctx, path, "-s", "-1", "-B", "127.0.0.1", "-p", port)
	if err := server.Start(); err != nil {
		return sample{}, err
	}
	defer server.Process.Kill() // where the client has failed
	var s sample
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var client *exec.Cmd
	for try := 0; ; try++ { // it says nothing when it listens
		client = exec.CommandContext(ctx, path, "-c", "127.0.0.1", "-p", port, "-P", strconv.Itoa(streams), "-n", strconv.FormatInt(total, 10), "-J")
		out, failed := client.Output()
		if s, err = parseIperf3(out); err == nil { // whatever it exits with: 3.12 exits with 0 where nobody listens
			break
		}
		if try == 50 || ctx.Err() != nil {
			return sample{}, errors.Join(err, failed)
		}
		<-tick.C
	}
	// It ends with its one test; where it waits for more, its account is the same.
	kill := time.AfterFunc(5*time.Second, func() { server.Process.Kill() })
	server.Wait()
	kill.Stop()
	s.Send = client.ProcessState.UserTime() + client.ProcessState.SystemTime()
	s.Receive = server.ProcessState.UserTime() + server.ProcessState.SystemTime()
	return s, nil
}

// parseIperf3 reads what has arrived, and how long it took.
func parseIperf3(out []byte) (sample, error) {
	var r struct {
		End struct {
			Received struct {
				Seconds float64 `json:"seconds"`
				Bytes   int64   `json:"bytes"`
			} `json:"sum_received"`
		} `json:"end"`
		Error string `json:"error"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return sample{}, fmt.Errorf("iperf3's answer: %w", err)
	}
	if r.Error != "" || r.End.Received.Bytes <= 0 || r.End.Received.Seconds <= 0 {
		return sample{}, fmt.Errorf("iperf3 has moved nothing: %s", r.Error)
	}
	return sample{Bytes: r.End.Received.Bytes, Took: time.Duration(r.End.Received.Seconds * float64(time.Second))}, nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

//go:embed mooncake_end.py
var mooncakeScript []byte

// runMooncake runs two of its engines once.
func runMooncake(ctx context.Context, python, script string, lanes int, total int64) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	start := func() (*end, error) {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		e, err := startEnd(ctx, "/usr/bin/env", "MC_TCP_ENABLE_CONNECTION_POOL=1", "MC_TCP_LANES_PER_PEER="+strconv.Itoa(lanes),
			"MC_LOG_LEVEL=ERROR", python, script, port, strconv.FormatInt(min(total, bufferBytes), 10))
		if err == nil {
			err = e.ready(ctx)
		}
		return e, err
	}
	to, err := start()
	if err != nil {
		return sample{}, err
	}
	defer to.kill()
	from, err := start()
	if err != nil {
		return sample{}, err
	}
	defer from.kill()
	var at place
	if err := to.ask(map[string]any{"do": "where"}, &at); err != nil {
		return sample{}, err
	}
	var before, after, took struct{ CPU, Seconds float64 }
	write := func(n int64) error {
		return from.ask(map[string]any{"do": "write", "to": at.Peer, "addr": at.Addr, "bytes": n}, &took)
	}
	if err := write(1 << 20); err != nil { // its connections are warm, as ours are
		return sample{}, err
	}
	if err := to.ask(map[string]any{"do": "cpu"}, &before); err != nil {
		return sample{}, err
	}
	if err := write(total); err != nil {
		return sample{}, err
	}
	if err := to.ask(map[string]any{"do": "cpu"}, &after); err != nil {
		return sample{}, err
	}
	second := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return sample{Bytes: total, Took: second(took.Seconds), Send: second(took.CPU), Receive: second(after.CPU - before.CPU)}, nil
}

// place is where a Mooncake engine's memory can be written.
type place struct {
	Peer string
	Addr uint64
}

// ready waits until the script listens; what the engine prints before that is not ours.
func (e *end) ready(ctx context.Context) error {
	for {
		line, err := e.out.ReadString('\n')
		if err != nil {
			e.kill()
			return fmt.Errorf("it does not start: %w\n%.2000s", err, e.errors.String())
		}
		if line == "ready\n" {
			return ctx.Err()
		}
	}
}

// kill ends a process that does not end by itself.
func (e *end) kill() {
	if !e.ended {
		e.ended = true
		e.in.Close()
		e.cmd.Process.Signal(os.Kill)
		e.cmd.Wait()
	}
}
