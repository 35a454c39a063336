package transfer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"shoal/internal/peer"
)

// The protocol, version 1. Both directions of a connection are frames, all numbers big-endian:
//
//	kind 1 | 0 0 0 | length of the payload 4 | check 4 | payload
//
// check is the CRC32C of the eight bytes before it and of the payload; of a chunk only of its number and sum, as the sum
// covers the rest. A frame whose check is wrong is a damaged stream: the connection ends, the transfer does not.
//
//	sender                      receiver
//	hello version from to   ->
//	                        <-  welcome version self nonce chunk
//	join ticket session ... ->                                     takes the ticket, or another connection for its transfer
//	                        <-  accept                             what has arrived before
//	chunk number sum data   ->
//	                        <-  ack number written|damaged
//	end sum                 ->
//	                        <-  done sum                           everything is there and kept
//	leave                   ->                                     the connection is free for the next join
//	cancel                  ->                                     the transfer is given up
//	                        <-  refuse reason text                 at any time; the connection ends
type kind uint8

const (
	kindHello kind = iota + 1
	kindWelcome
	kindJoin
	kindAccept
	kindChunk
	kindAck
	kindEnd
	kindDone
	kindLeave
	kindCancel
	kindRefuse
)

const (
	version   = 1
	headBytes = 12
	// chunkHead is what of a chunk's payload precedes the data: its number and its sum.
	chunkHead  = 8
	magic      = "shoal-kv"
	nonceBytes = 16
	macBytes   = 32
	maxText    = 200 // of a refusal
	joinBytes  = ticketIDBytes + sessionBytes + 8 + 4 + 1 + macBytes
	maxAccept  = 1 + 4 + MaxChunks/8 + 4*MaxChunks
)

// errFrame is any frame that is not what it has to be.
var errFrame = errors.New("transfer: damaged or unknown message")

// head is what every frame begins with.
type head struct {
	kind   kind
	length int
	check  uint32
	raw    [8]byte // that check covers
}

// maxLength is how long a frame's payload may be.
func (k kind) maxLength() int {
	switch k {
	case kindHello:
		return len(magic) + 2 + 2*(1+peer.MaxID)
	case kindWelcome:
		return 2 + 1 + peer.MaxID + nonceBytes + 4
	case kindJoin:
		return joinBytes
	case kindAccept:
		return maxAccept
	case kindChunk:
		return chunkHead + maxChunk
	case kindAck:
		return 5
	case kindEnd, kindDone:
		return 4
	case kindRefuse:
		return 1 + maxText
	}
	return 0 // leave, cancel
}

// decodeHead reads a frame's head.
func decodeHead(b *[headBytes]byte) (head, error) {
	h := head{kind: kind(b[0]), check: binary.BigEndian.Uint32(b[8:])}
	copy(h.raw[:], b[:8])
	n := binary.BigEndian.Uint32(b[4:])
	if h.kind < kindHello || h.kind > kindRefuse || b[1]|b[2]|b[3] != 0 || int64(n) > int64(h.kind.maxLength()) {
		return head{}, errFrame
	}
	if h.kind == kindChunk && n < chunkHead {
		return head{}, errFrame
	}
	h.length = int(n)
	return h, nil
}

// verify checks the payload, of a chunk its first chunkHead bytes.
func (h *head) verify(payload []byte) error {
	var sum [12]byte
	copy(sum[:], h.raw[:])
	if checksumOf(sum[:8], payload) != h.check {
		return errFrame
	}
	return nil
}

// appendFrame appends a frame whose payload is written by put.
func appendFrame(b []byte, k kind, put func([]byte) []byte) []byte {
	at := len(b)
	b = append(b, byte(k), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	if put != nil {
		b = put(b)
	}
	payload := b[at+headBytes:]
	binary.BigEndian.PutUint32(b[at+4:], uint32(len(payload)))
	binary.BigEndian.PutUint32(b[at+8:], checksumOf(b[at:at+8], payload))
	return b
}

// appendChunk appends a chunk's head; the n bytes of data follow it on the connection.
func appendChunk(b []byte, number int, sum uint32, n int) []byte {
	at := len(b)
	b = append(b, byte(kindChunk), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(chunkHead+n))
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(number))
	b = binary.BigEndian.AppendUint32(b, sum)
	binary.BigEndian.PutUint32(b[at+8:], checksumOf(b[at:at+8], b[at+headBytes:]))
	return b
}

func decodeChunk(p []byte) (number uint32, sum uint32, err error) {
	if len(p) != chunkHead {
		return 0, 0, errFrame
	}
	return binary.BigEndian.Uint32(p), binary.BigEndian.Uint32(p[4:]), nil
}

type hello struct {
	version  uint16
	from, to peer.ID
}

func appendHello(b []byte, h hello) []byte {
	return appendFrame(b, kindHello, func(b []byte) []byte {
		b = append(b, magic...)
		b = binary.BigEndian.AppendUint16(b, h.version)
		return appendID(appendID(b, h.from), h.to)
	})
}

func decodeHello(p []byte) (h hello, err error) {
	if len(p) < len(magic)+2 || string(p[:len(magic)]) != magic {
		return h, errFrame
	}
	p = p[len(magic):]
	h.version, p = binary.BigEndian.Uint16(p), p[2:]
	if h.from, p, err = cutID(p); err != nil {
		return h, err
	}
	if h.to, p, err = cutID(p); err != nil {
		return h, err
	}
	if len(p) != 0 {
		return h, errFrame
	}
	return h, nil
}

type welcome struct {
	version uint16
	self    peer.ID
	nonce   [nonceBytes]byte
	chunk   uint32 // the largest that is accepted
}

func appendWelcome(b []byte, w *welcome) []byte {
	return appendFrame(b, kindWelcome, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint16(b, w.version)
		b = appendID(b, w.self)
		b = append(b, w.nonce[:]...)
		return binary.BigEndian.AppendUint32(b, w.chunk)
	})
}

func decodeWelcome(p []byte) (w welcome, err error) {
	if len(p) < 2 {
		return w, errFrame
	}
	w.version, p = binary.BigEndian.Uint16(p), p[2:]
	if w.self, p, err = cutID(p); err != nil {
		return w, err
	}
	if len(p) != nonceBytes+4 {
		return w, errFrame
	}
	copy(w.nonce[:], p)
	w.chunk = binary.BigEndian.Uint32(p[nonceBytes:])
	if w.chunk < minChunk || w.chunk > maxChunk {
		return w, errFrame
	}
	return w, nil
}

type join struct {
	ticket  ticketID
	session session
	layout  layout
	list    bool // say in accept what has arrived
	mac     [macBytes]byte
}

// appendJoin appends a join whose proof is made with the ticket's secret, for the receiver that gave the nonce.
func appendJoin(b []byte, j *join, secret *ticketSecret, nonce *[nonceBytes]byte) []byte {
	return appendFrame(b, kindJoin, func(b []byte) []byte {
		at := len(b)
		b = append(b, j.ticket[:]...)
		b = append(b, j.session[:]...)
		b = binary.BigEndian.AppendUint64(b, uint64(j.layout.size))
		b = binary.BigEndian.AppendUint32(b, uint32(j.layout.chunk))
		b = append(b, flag(j.list))
		mac := proof(secret, nonce, b[at:])
		return append(b, mac[:]...)
	})
}

func decodeJoin(p []byte) (j join, err error) {
	if len(p) != joinBytes {
		return j, errFrame
	}
	p = p[copy(j.ticket[:], p):]
	p = p[copy(j.session[:], p):]
	j.layout.size = int64(binary.BigEndian.Uint64(p))
	j.layout.chunk = int64(binary.BigEndian.Uint32(p[8:]))
	if j.layout.size < 0 || p[12] > 1 {
		return j, errFrame
	}
	j.list = p[12] == 1
	copy(j.mac[:], p[13:])
	return j, nil
}

// accept says what has arrived of a transfer.
type accept struct {
	finished bool
	sum      uint32 // of everything, where finished
	chunks   int    // of the transfer
	have     []byte // a bit for each chunk, the lowest first; nil: none, or not asked for
	sums     []byte // 4 bytes for each bit that is set
}

const (
	acceptNothing byte = iota
	acceptList
	acceptFinished
)

func appendAccept(b []byte, a *accept) []byte {
	return appendFrame(b, kindAccept, func(b []byte) []byte {
		state := acceptNothing
		switch {
		case a.finished:
			state = acceptFinished
		case a.have != nil:
			state = acceptList
		}
		b = append(b, state)
		b = binary.BigEndian.AppendUint32(b, uint32(a.chunks))
		switch state {
		case acceptFinished:
			return binary.BigEndian.AppendUint32(b, a.sum)
		case acceptList:
			return append(append(b, a.have...), a.sums...)
		}
		return b
	})
}

// decodeAccept keeps parts of p.
func decodeAccept(p []byte) (a accept, err error) {
	if len(p) < 5 {
		return a, errFrame
	}
	n := binary.BigEndian.Uint32(p[1:])
	if n > MaxChunks {
		return a, errFrame
	}
	a.chunks = int(n)
	state, p := p[0], p[5:]
	switch state {
	case acceptNothing:
		if len(p) != 0 {
			return a, errFrame
		}
	case acceptFinished:
		if len(p) != 4 {
			return a, errFrame
		}
		a.finished, a.sum = true, binary.BigEndian.Uint32(p)
	case acceptList:
		mapped := (a.chunks + 7) / 8
		if len(p) < mapped {
			return a, errFrame
		}
		a.have, a.sums = p[:mapped], p[mapped:]
		set := 0
		for _, b := range a.have {
			set += bits.OnesCount8(b)
		}
		if a.chunks%8 != 0 && a.have[mapped-1]>>(a.chunks%8) != 0 || len(a.sums) != 4*set {
			return a, errFrame
		}
	default:
		return a, errFrame
	}
	return a, nil
}

// each calls yield for every chunk that has arrived, in order.
func (a *accept) each(yield func(number int, sum uint32)) {
	sums := a.sums
	for i := range a.chunks {
		if a.have != nil && a.have[i/8]>>(i%8)&1 != 0 {
			yield(i, binary.BigEndian.Uint32(sums))
			sums = sums[4:]
		}
	}
}

// ack answers a chunk.
type ack struct {
	number  uint32
	damaged bool // it is to be sent again
}

func appendAck(b []byte, a ack) []byte {
	return appendFrame(b, kindAck, func(b []byte) []byte {
		return append(binary.BigEndian.AppendUint32(b, a.number), flag(a.damaged))
	})
}

func decodeAck(p []byte) (ack, error) {
	if len(p) != 5 || p[4] > 1 {
		return ack{}, errFrame
	}
	return ack{number: binary.BigEndian.Uint32(p), damaged: p[4] == 1}, nil
}

// appendSum appends an end or a done.
func appendSum(b []byte, k kind, sum uint32) []byte {
	return appendFrame(b, k, func(b []byte) []byte { return binary.BigEndian.AppendUint32(b, sum) })
}

func decodeSum(p []byte) (uint32, error) {
	if len(p) != 4 {
		return 0, errFrame
	}
	return binary.BigEndian.Uint32(p), nil
}

func appendRefuse(b []byte, r Reason, text string) []byte {
	return appendFrame(b, kindRefuse, func(b []byte) []byte {
		return append(append(b, byte(r)), text[:min(len(text), maxText)]...)
	})
}

// decodeRefuse makes the text one that can be shown: it is a stranger's.
func decodeRefuse(p []byte) (Reason, string, error) {
	if len(p) < 1 || p[0] == 0 || Reason(p[0]) >= reasons {
		return 0, "", errFrame
	}
	text := fmt.Sprintf("%+q", p[1:])
	return Reason(p[0]), text[1 : len(text)-1], nil
}

func appendID(b []byte, id peer.ID) []byte { return append(append(b, byte(len(id))), id...) }

func cutID(p []byte) (peer.ID, []byte, error) {
	if len(p) < 1 || len(p)-1 < int(p[0]) {
		return "", nil, errFrame
	}
	n := 1 + int(p[0])
	id := peer.ID(p[1:n])
	if id.Validate() != nil {
		return "", nil, errFrame
	}
	return id, p[n:], nil
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}
