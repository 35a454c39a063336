package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// maxLost bounds the addresses of vanished peers that are still tried, keepLost how long.
	maxLost  = 256
	keepLost = 24 * time.Hour
	// maxJoinAddrs bounds the addresses tried at a time, maxJoining how many of them at once.
	maxJoinAddrs = 64
	maxJoining   = 8
)

// lost remembers where peers were that vanished without a word. memberlist forgets the dead soon; when a partition ends
// whose sides have no address of each other in their join lists, this is how they find each other again.
type lost struct {
	mu    sync.Mutex
	addrs []lostAddr // the eldest first
}

type lostAddr struct {
	addr string
	at   time.Time
}

func (l *lost) add(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addrs = slices.DeleteFunc(l.addrs, func(a lostAddr) bool { return a.addr == addr })
	if len(l.addrs) == maxLost {
		l.addrs = slices.Delete(l.addrs, 0, 1)
	}
	l.addrs = append(l.addrs, lostAddr{addr, time.Now()})
}

// missing gives the addresses where nobody is alive, and forgets the others.
func (l *lost) missing(alive map[string]bool) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addrs = slices.DeleteFunc(l.addrs, func(a lostAddr) bool { return alive[a.addr] || time.Since(a.at) > keepLost })
	var addrs []string
	for _, a := range l.addrs {
		addrs = append(addrs, a.addr)
	}
	return addrs
}

// resolver is the part of net.Resolver that joining uses.
type resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// checkJoin reads one entry of a join list.
func checkJoin(s string) (host string, port uint16, err error) {
	host, p, err := net.SplitHostPort(s)
	if err != nil || host == "" {
		return "", 0, fmt.Errorf("cluster: join address %q is not host:port", s)
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("cluster: join address %q: %q is not a port (1 to 65535)", s, p)
	}
	return host, uint16(n), nil
}

// joinAddrs resolves the join list: names anew each time. It gives what could be resolved, and the errors of the rest.
func (c *Cluster) joinAddrs(ctx context.Context) ([]string, error) {
	var addrs []string
	var errs []error
	for _, s := range c.cfg.Join {
		host, port, err := checkJoin(s)
		if err != nil {
			return nil, err // Validate has checked it
		}
		ips := []netip.Addr{}
		if ip, err := netip.ParseAddr(host); err == nil {
			ips = append(ips, ip)
		} else if ips, err = c.resolve.LookupNetIP(ctx, "ip", host); err != nil {
			errs = append(errs, err)
			continue
		}
		for _, ip := range ips {
			addrs = append(addrs, netip.AddrPortFrom(ip.Unmap(), port).String())
		}
	}
	slices.Sort(addrs)
	return slices.Compact(addrs), errors.Join(errs...)
}

// keepJoining brings this peer together with whoever is at the addresses of the join list, and with those that were
// lost, for ever: what is a member is left alone, what is not is tried with backoff.
func (c *Cluster) keepJoining() {
	defer c.wg.Done()
	wait := c.t.retryMin
	told := false
	for {
		missing, err := c.joinMissing()
		if missing == 0 {
			told = false
		} else if err != nil && !told {
			told = true
			c.log.Warn("cluster: known addresses of peers do not answer; they are tried again and again", "missing", missing, "err", err)
		}
		if time.Since(c.started) < youth {
			c.mingle()
		}
		timer := time.NewTimer(jitter(wait))
		select {
		case <-timer.C:
			wait = min(2*wait, c.t.retryMax)
		case <-c.rejoin: // somebody was lost just now
			timer.Stop()
			wait = c.t.retryMin
		case <-c.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// mingle compares the member list with that of one random peer, as the gossip does all the time, but much more seldom.
// Where many agents start together some miss the news of some others: they find each other within seconds.
func (c *Cluster) mingle() {
	if some := c.pick(nil, 1); len(some) > 0 {
		c.ml.Join([]string{some[0].life.node.Address()})
	}
}

// joinMissing tries the addresses at which nobody is alive, and gives how many there are, and the last error.
func (c *Cluster) joinMissing() (missing int, err error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.t.stream)
	defer cancel()
	addrs, err := c.joinAddrs(ctx)
	if err != nil {
		missing++
	}
	alive := c.members.gossipAddrs()
	alive[c.GossipAddr()] = true
	addrs = append(addrs, c.lost.missing(alive)...)
	addrs = slices.DeleteFunc(addrs, func(a string) bool { return alive[a] })
	missing += len(addrs)
	if len(addrs) > maxJoinAddrs {
		// Others have their turn next time.
		rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
		addrs = addrs[:maxJoinAddrs]
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, maxJoining)
	for _, a := range addrs {
		select {
		case slots <- struct{}{}:
		case <-c.ctx.Done():
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() { <-slots }()
			c.count.joinTries.Add(1)
			if _, jerr := c.ml.Join([]string{a}); jerr != nil {
				c.count.joinErrors.Add(1)
				mu.Lock()
				err = jerr
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	return missing, err
}
