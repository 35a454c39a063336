package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"shoal/internal/transfer"
)

// bufferBytes is the memory that is moved from and to, once and again: far more than any cache.
const bufferBytes = 1 << 30

// order is what the two ends of one run are told, each in one line of JSON.
type order struct {
	Streams int
	Bytes   int64
	Memory  bool
	Ports   [][]uint16        // for the sender: source ports of each stream
	Addr    string            // of the receiver
	Tickets []transfer.Ticket // one for each transfer
}

// sizes cuts the order into transfers: one, or as many as the buffer has to be moved.
func (o *order) sizes() (sizes []int64) {
	each := o.Bytes
	if o.Memory {
		each = min(each, bufferBytes)
	}
	for left := o.Bytes; left > 0; left -= each {
		each = min(each, left)
		sizes = append(sizes, each)
	}
	return sizes
}

// receive is the receiving end: it answers its order with tickets, and the end of its input with its CPU time.
func receive(r io.Reader, w io.Writer) error {
	var o order
	if err := json.NewDecoder(r).Decode(&o); err != nil {
		return err
	}
	m, err := transfer.New(transfer.Defaults(), "receiver", nil)
	if err != nil {
		return err
	}
	defer m.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go m.Serve(l)
	var memory []byte
	if o.Memory {
		memory = filled(1)
	}
	o.Addr = l.Addr().String()
	for _, size := range o.sizes() {
		sink := transfer.Sink(transfer.Discard())
		if o.Memory {
			sink = transfer.MemorySink(memory[:size])
		}
		t, err := m.Ticket("sender", size, sink)
		if err != nil {
			return err
		}
		o.Tickets = append(o.Tickets, t)
	}
	before := cpu()
	if err := json.NewEncoder(w).Encode(o); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(sample{Receive: cpu() - before})
}

// send is the sending end: it says how long the bytes of its order took.
func send(ctx context.Context, r io.Reader, w io.Writer) error {
	var o order
	if err := json.NewDecoder(r).Decode(&o); err != nil {
		return err
	}
	m, err := transfer.New(transfer.Defaults(), "sender", nil)
	if err != nil {
		return err
	}
	defer m.Close()
	var way route
	for i, ports := range o.Ports {
		way.Legs = append(way.Legs, transfer.Leg{ID: i, Ports: ports})
	}
	var memory []byte
	if o.Memory {
		memory = filled(2)
	}
	if err := m.Warm(ctx, "receiver", o.Addr, way.Legs); err != nil {
		return err
	}
	var s sample
	before := cpu()
	for i, size := range o.sizes() {
		src := transfer.Zeros(size)
		if o.Memory {
			src = transfer.MemorySource(memory[:size])
		}
		res, err := m.Send(ctx, "receiver", o.Addr, o.Tickets[i], src, size, way, nil)
		if err != nil {
			return err
		}
		s.Bytes += res.Bytes
		s.Took += res.Took
	}
	s.Send = cpu() - before
	return json.NewEncoder(w).Encode(s)
}

// cpu is what this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// filled is memory that the kernel has given already.
func filled(b byte) []byte { return bytes.Repeat([]byte{b}, bufferBytes) }

// route is a Steer that stays.
type route transfer.Route

func (r route) Route() transfer.Route { return transfer.Route(r) }
func (r route) Moved(int64)           {}

// runOurs runs both ends once.
func runOurs(ctx context.Context, o order, random *rand.Rand) (sample, error) {
	for range o.Streams {
		var ports []uint16
		for range 8 { // below those that the kernel gives to others
			ports = append(ports, uint16(20_000+random.IntN(10_000)))
		}
		o.Ports = append(o.Ports, ports)
	}
	self, err := os.Executable()
	if err != nil {
		return sample{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	to, err := startEnd(ctx, self, "-role", "receive")
	if err != nil {
		return sample{}, err
	}
	defer to.stop()
	if err := to.ask(&o, &o); err != nil {
		return sample{}, err
	}
	from, err := startEnd(ctx, self, "-role", "send")
	if err != nil {
		return sample{}, err
	}
	defer from.stop()
	var s sample
	if err := from.ask(&o, &s); err != nil {
		return sample{}, err
	}
	to.in.Close()
	var r sample
	err = to.ask(nil, &r)
	s.Receive = r.Receive
	return s, err
}

// runTime is more than any single run takes.
const runTime = 2 * time.Minute

// end is a process that is told one line and answers with one.
type end struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	errors bytes.Buffer
	ended  bool
}

func startEnd(ctx context.Context, path string, args ...string) (*end, error) {
	e := &end{cmd: exec.CommandContext(ctx, path, args...)}
	e.cmd.Stderr = &e.errors
	in, err := e.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	e.in, e.out = in, bufio.NewReader(out)
	return e, e.cmd.Start()
}

func (e *end) ask(question, answer any) error {
	if question != nil {
		if err := json.NewEncoder(e.in).Encode(question); err != nil {
			return err
		}
	}
	line, err := e.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, answer)
	}
	if err != nil {
		e.stop()
		return fmt.Errorf("no answer: %w\n%s", err, bytes.TrimSpace(e.errors.Bytes()))
	}
	return nil
}

// stop ends the process by the end of its input.
func (e *end) stop() {
	if !e.ended {
		e.ended = true
		e.in.Close()
		e.cmd.Wait()
	}
}
