package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"shoal/internal/peer"
)

// metaFormat is the first byte of the metadata. Later formats only append: what follows the known fields is ignored.
const metaFormat = 1

// maxMeta is memberlist's limit for metadata, in bytes.
const maxMeta = 512

// maxAddr bounds a peer address: an IPv6 address with zone and port is well below it.
const maxAddr = 128

// appendMeta encodes what the gossip tells of a member: format, versions, incarnation, ID, peer address, control address.
func appendMeta(b []byte, m *Member) []byte {
	b = append(b, metaFormat, m.MinVersion, m.MaxVersion)
	b = binary.LittleEndian.AppendUint64(b, m.Incarnation)
	b = append(b, byte(len(m.ID)))
	b = append(b, m.ID...)
	b = append(b, byte(len(m.PeerAddr)))
	b = append(b, m.PeerAddr...)
	b = append(b, byte(len(m.ControlAddr)))
	return append(b, m.ControlAddr...)
}

// decodeMeta reads what appendMeta wrote. It comes from the network.
func decodeMeta(b []byte) (Member, error) {
	var m Member
	if len(b) > maxMeta {
		return m, fmt.Errorf("cluster: metadata of %d bytes", len(b))
	}
	if len(b) < 12 {
		return m, errors.New("cluster: metadata cut off")
	}
	if b[0] < metaFormat {
		return m, fmt.Errorf("cluster: metadata of format %d", b[0])
	}
	m.MinVersion, m.MaxVersion = b[1], b[2]
	m.Incarnation = binary.LittleEndian.Uint64(b[3:])
	id, rest, ok := cutField(b[11:], peer.MaxID)
	if !ok {
		return m, errors.New("cluster: metadata cut off in the ID")
	}
	addr, rest, ok := cutField(rest, maxAddr)
	if !ok {
		return m, errors.New("cluster: metadata cut off in the peer address")
	}
	m.ID, m.PeerAddr = peer.ID(id), string(addr)
	if len(rest) > 0 { // none: of a version before control networks
		control, _, ok := cutField(rest, maxAddr)
		if !ok {
			return m, errors.New("cluster: metadata cut off in the control address")
		}
		m.ControlAddr = string(control)
	}
	if m.MinVersion > m.MaxVersion {
		return m, fmt.Errorf("cluster: metadata with versions %d to %d", m.MinVersion, m.MaxVersion)
	}
	if err := m.ID.Validate(); err != nil {
		return m, fmt.Errorf("cluster: metadata: %w", err)
	}
	if !reachable(m.PeerAddr) {
		return m, fmt.Errorf("cluster: metadata with the peer address %.40q, which is not IP:port", m.PeerAddr)
	}
	if m.ControlAddr != "" && !reachable(m.ControlAddr) {
		return m, fmt.Errorf("cluster: metadata with the control address %.40q, which is not IP:port", m.ControlAddr)
	}
	return m, nil
}

// reachable reports whether addr is the IP:port of one machine.
func reachable(addr string) bool {
	ap, err := netip.ParseAddrPort(addr)
	return err == nil && ap.Port() != 0 && !ap.Addr().IsUnspecified() && !ap.Addr().IsMulticast()
}

// cutField takes a field with its length before it off b.
func cutField(b []byte, limit int) (field, rest []byte, ok bool) {
	if len(b) == 0 || int(b[0]) > limit || len(b) < 1+int(b[0]) {
		return nil, nil, false
	}
	n := 1 + int(b[0])
	return b[1:n], b[n:], true
}

// gossipName is a member's name in the gossip. It is the ID and the incarnation, so that an agent that was killed and
// comes back, perhaps at another address, is a newcomer whom nobody holds for a liar about its old address; '@' stands in
// no ID, so that no two members share a name.
func (m *Member) gossipName() string {
	return string(m.ID) + "@" + strconv.FormatUint(m.Incarnation, 16)
}
