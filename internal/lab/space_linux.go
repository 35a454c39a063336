package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespaceDir is where named namespaces stand, for `ip netns` as well.
const namespaceDir = "/run/netns"

// space is one namespace that this process has open.
type space struct {
	name string // as in namespaceDir
	ns   netns.NsHandle
	nl   *netlink.Handle
	dev  map[string]int // interface indexes, by name; of the cables' ends
}

// makeSpace makes a named namespace with these settings, its loopback up.
func makeSpace(name string, settings []setting) (*space, error) {
	err := lostThread(func() error {
		ns, err := netns.NewNamed(name)
		if err != nil {
			return fmt.Errorf("lab: namespace %s: %w", name, err)
		}
		defer ns.Close()
		return apply(name, settings)
	})
	if err != nil {
		return nil, err
	}
	s, err := openSpace(name)
	if err != nil {
		return nil, err
	}
	lo, err := s.nl.LinkByName("lo")
	if err == nil {
		err = s.nl.LinkSetUp(lo)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("lab: %s: loopback: %w", name, err)
	}
	return s, nil
}

// openSpace opens a namespace that is there.
func openSpace(name string) (*space, error) {
	ns, err := netns.GetFromName(name)
	if err != nil {
		return nil, fmt.Errorf("lab: namespace %s: %w", name, err)
	}
	nl, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		ns.Close()
		return nil, fmt.Errorf("lab: namespace %s: netlink: %w", name, err)
	}
	return &space{name: name, ns: ns, nl: nl, dev: map[string]int{}}, nil
}

func (s *space) close() {
	s.nl.Close()
	s.ns.Close()
}

// removeSpace takes the name of a namespace away. The kernel ends the namespace, with all its interfaces, when nobody uses
// it any more. What is not there is no error.
func removeSpace(name string) error {
	path := namespaceDir + "/" + name
	for range 8 { // mounts on top of each other
		err := unix.Unmount(path, unix.MNT_DETACH)
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		if errors.Is(err, unix.EINVAL) { // no mount: a file that a crash, or a start of the machine, left behind
			break
		}
		if err != nil {
			return fmt.Errorf("lab: namespace %s: %w", name, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("lab: namespace %s: %w", name, err)
	}
	return nil
}

// do runs f on a thread that is in this namespace, and waits for it. Sockets that f opens, and processes that it starts, are
// in the namespace for good; goroutines that it starts are not. The thread is lost where it cannot be brought back.
func (s *space) do(f func() error) error {
	err := errors.New("lab: the function ended its goroutine")
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		own, e := netns.Get()
		if e != nil {
			runtime.UnlockOSThread()
			err = fmt.Errorf("lab: this thread's namespace: %w", e)
			return
		}
		defer own.Close()
		defer func() {
			if netns.Set(own) == nil {
				runtime.UnlockOSThread()
			}
		}()
		if e := netns.Set(s.ns); e != nil {
			err = fmt.Errorf("lab: entering %s: %w", s.name, e)
			return
		}
		err = f()
	}()
	<-done
	return err
}

// lostThread runs f on a thread that nothing else ever runs on again.
func lostThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The program's first thread is never ended, and would keep the namespace. While it waits here, f has another.
			err := lostThread(f)
			runtime.UnlockOSThread()
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// setting is one of the kernel's settings below /proc/sys, in the namespace of the thread that writes it.
type setting struct {
	path  string // with slashes, below /proc/sys/net
	value string
	// Old kernels have some of them for the whole machine only, and those are not ours to change.
	optional bool
	missing  string // what the lab needs for it, where it is not optional
}

// apply writes settings, in the namespace of this thread.
func apply(name string, settings []setting) error {
	for _, s := range settings {
		err := os.WriteFile("/proc/sys/net/"+s.path, []byte(s.value), 0)
		switch {
		case err == nil || s.optional && errors.Is(err, fs.ErrNotExist):
		case s.missing != "" && errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("lab: %s: this kernel has no %s; %s", name, strings.ReplaceAll(s.path, "/", "."), s.missing)
		default:
			return fmt.Errorf("lab: %s: setting %s to %q: %w", name, s.path, s.value, err)
		}
	}
	return nil
}

// quiet are the settings that every namespace has: what would send packets of its own accord is off.
func quiet() []setting {
	return []setting{
		{path: "ipv6/conf/default/disable_ipv6", value: "1", optional: true},
		{path: "ipv4/conf/all/rp_filter", value: "0"},
		{path: "ipv4/conf/default/rp_filter", value: "0"},
		{path: "ipv4/conf/all/send_redirects", value: "0"},
		{path: "ipv4/conf/default/send_redirects", value: "0"},
	}
}

// hostSettings make transfers comparable: nothing is remembered from one connection to the next.
func (p *plan) hostSettings() []setting {
	return append(quiet(),
		setting{path: "ipv4/tcp_no_metrics_save", value: "1"},
		setting{path: "ipv4/tcp_slow_start_after_idle", value: "0"},
		setting{path: "ipv4/ip_local_reserved_ports", value: fmt.Sprintf("%d-%d", p.cfg.FirstPort, p.cfg.LastPort)},
	)
}

// hashFields are both addresses, the protocol, and both ports, of the outer header.
const hashFields = 0x37

// switchSettings make a namespace an ECMP switch. Policy 3 hashes every packet anew; policy 1 would take over a hash that a
// local socket has left on it.
func switchSettings(seed uint32) []setting {
	const old = "the lab needs Linux 6.11 or newer"
	return append(quiet(),
		setting{path: "ipv4/ip_forward", value: "1"},
		setting{path: "ipv4/fib_multipath_hash_policy", value: "3", missing: old},
		setting{path: "ipv4/fib_multipath_hash_fields", value: strconv.Itoa(hashFields), missing: old},
		seedSetting(seed),
		setting{path: "ipv4/icmp_ratelimit", value: "0"},
		setting{path: "ipv4/icmp_msgs_per_sec", value: "4000", optional: true},
		setting{path: "ipv4/icmp_msgs_burst", value: "4000", optional: true},
		setting{path: "ipv4/icmp_errors_use_inbound_ifaddr", value: "1"},
	)
}

func seedSetting(seed uint32) setting {
	return setting{path: "ipv4/fib_multipath_hash_seed", value: strconv.FormatUint(uint64(seed), 10), missing: "the lab needs Linux 6.11 or newer"}
}

// congestionControl is cubic where the kernel has it, else reno, which every kernel has. The machine's default may be one
// that shares a link in another way (BBR). The hosts' routes carry it, since the setting of a namespace may name only what
// the machine allows to everybody.
func congestionControl() string {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err == nil {
		for _, name := range strings.Fields(string(b)) {
			if name == "cubic" {
				return name
			}
		}
	}
	return "reno"
}
