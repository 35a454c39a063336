package cluster

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// control is the socket for datagrams on a control network of their own. What goes over it is what would go over the gossip,
// sealed by a key of its own (AES-256-GCM, a random nonce before each); a message that is played back says nothing new, since
// what datagrams carry is numbered by its owner. Without a shoal key it is in the clear, as the gossip is.
type control struct {
	c     *Cluster
	udp   *net.UDPConn
	seal  cipher.AEAD   // nil without a key
	opens []cipher.AEAD // of all keys
}

// sealing is what sealing adds to a datagram, in bytes.
const sealing = 12 + 16

func (c *Cluster) newControl(bind netip.AddrPort) (*control, error) {
	k := &control{c: c}
	for _, key := range c.cfg.Keys {
		b, err := aes.NewCipher(derive(key, purposeControl))
		if err != nil {
			panic(fmt.Sprintf("cluster: AES with 32 bytes: %v", err))
		}
		a, err := cipher.NewGCM(b)
		if err != nil {
			panic(fmt.Sprintf("cluster: GCM: %v", err))
		}
		k.opens = append(k.opens, a)
	}
	if len(k.opens) > 0 {
		k.seal = k.opens[0]
	}
	udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(bind))
	if err != nil {
		return nil, fmt.Errorf("cluster: control address: %w", err)
	}
	k.udp = udp
	return k, nil
}

func (k *control) addr() string { return k.udp.LocalAddr().String() }

func (k *control) send(addr string, msg []byte) error {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return err
	}
	if k.seal != nil {
		out := make([]byte, 12, sealing+len(msg))
		rand.Read(out)
		msg = k.seal.Seal(out, out, msg, nil)
	}
	_, err = k.udp.WriteToUDPAddrPort(msg, to)
	return err
}

var errUnsealed = errors.New("cluster: control: garbage, or a peer of another shoal")

func (k *control) read() {
	defer k.c.wg.Done()
	go func() { <-k.c.ctx.Done(); k.udp.Close() }()
	buf := make([]byte, maxPacket+1)
	for {
		n, from, err := k.udp.ReadFromUDPAddrPort(buf)
		if k.c.ctx.Err() != nil {
			return
		}
		if err != nil {
			continue // an ICMP error of an earlier write; the socket is well
		}
		msg, ok := k.open(buf[:n])
		if n > maxPacket || !ok {
			k.c.refusedAddr(from.String(), errUnsealed)
			continue
		}
		k.c.said(msg)
	}
}

// open gives what was sealed; it comes from the network.
func (k *control) open(b []byte) ([]byte, bool) {
	if k.seal == nil {
		return b, true
	}
	if len(b) < sealing {
		return nil, false
	}
	for _, a := range k.opens {
		if msg, err := a.Open(nil, b[:12], b[12:], nil); err == nil {
			return msg, true
		}
	}
	return nil, false
}
