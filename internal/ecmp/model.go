package ecmp

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Kind is a family of hash functions.
type Kind uint8

const (
	Unknown     Kind = iota // nothing is known of the switch's hash: its paths can only be learned
	Murmur3                 // MurmurHash3_x86_32, as in the ns-3 family of simulators; murmur.go
	CRC16CCITT              // polynomial 0x1021, highest bit first; crc.go
	CRC16Bisync             // polynomial 0x8005, lowest bit first (CRC-16/ARC)
	CRC32                   // polynomial 0x04C11DB7, lowest bit first (Ethernet, zlib)
	CRC32Low                // the low 16 bits of CRC32
	CRC32High               // the high 16 bits of CRC32
	XOR16                   // exclusive or of 16-bit words
	Linux                   // the Linux kernel's, of 31 bits; linux.go
	kinds
)

// kindNames are the text forms, by Kind.
var kindNames = [kinds]string{"unknown", "murmur3", "crc16-ccitt", "crc16-bisync", "crc32", "crc32-low", "crc32-high", "xor16", "linux"}

func (k Kind) String() string {
	if k >= kinds {
		return "kind " + strconv.Itoa(int(k))
	}
	return kindNames[k]
}

// MarshalText gives the name in a configuration.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the name in a configuration.
func (k *Kind) UnmarshalText(b []byte) error {
	i := slices.Index(kindNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("ecmp: no hash is called %q; there are %s", b, strings.Join(kindNames[:], ", "))
	}
	*k = Kind(i)
	return nil
}

// Linear says whether exclusive or of keys is exclusive or of hashes, but for a constant (RePaC).
func (k Kind) Linear() bool { return k >= CRC16CCITT && k <= XOR16 }

// Fields is a set of header fields. The bits are those of Linux's fib_multipath_hash_fields; 0 is a kind's own default.
type Fields uint8

const (
	SrcIP     Fields = 0x01
	DstIP     Fields = 0x02
	Proto     Fields = 0x04
	SrcPort   Fields = 0x10
	DstPort   Fields = 0x20
	AllFields        = SrcIP | DstIP | Proto | SrcPort | DstPort
)

// fieldNames are the text forms, in the order in which fields are hashed.
var fieldNames = []struct {
	field Fields
	name  string
}{{SrcIP, "src_ip"}, {DstIP, "dst_ip"}, {Proto, "proto"}, {SrcPort, "src_port"}, {DstPort, "dst_port"}}

func (f Fields) String() string {
	var names []string
	for _, n := range fieldNames {
		if f&n.field != 0 {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, ",")
}

// MarshalText gives the form of a configuration, "src_ip,dst_ip"; empty for 0.
func (f Fields) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads the form of a configuration, or a number as Linux writes it (0x37).
func (f *Fields) UnmarshalText(b []byte) error {
	text := string(b)
	if n, err := strconv.ParseUint(text, 0, 8); err == nil && Fields(n)&^AllFields == 0 {
		*f = Fields(n)
		return nil
	}
	var set Fields
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		i := slices.IndexFunc(fieldNames, func(n struct {
			field Fields
			name  string
		}) bool {
			return n.name == word
		})
		if i < 0 {
			return fmt.Errorf("ecmp: no header field is called %q; there are %v", word, AllFields)
		}
		set |= fieldNames[i].field
	}
	*f = set
	return nil
}

// Model is a switch's hash function with its parameters. The zero value is of kind Unknown.
type Model struct {
	Kind Kind `yaml:"kind" json:"kind"`
	// Seed is the initial value of the hash. 16 bits for CRC16 and XOR16. For Linux net.ipv4.fib_multipath_hash_seed (Linux
	// 6.11 and later), which cannot be 0: the kernel then takes a random one.
	Seed uint32 `yaml:"seed,omitempty" json:"seed,omitempty"`
	// Offset is by how many bits the hash is rotated to the right, within its width. Not for Linux.
	Offset uint8 `yaml:"offset,omitempty" json:"offset,omitempty"`
	// Fields are what is hashed. 0 is all five, without the protocol for murmur3, which has no place for it.
	Fields Fields `yaml:"fields,omitempty" json:"fields,omitempty"`
	// Policy is Linux's net.ipv4.fib_multipath_hash_policy, 1 or 3; 0 is 3. Policy 1 is predicted only while nothing has
	// given the packet a hash before: neither a socket of the same machine, nor a network card that spreads its queues.
	Policy uint8 `yaml:"policy,omitempty" json:"policy,omitempty"`
	// Local says that a Linux machine with several uplinks sends what it generates itself; false is what it forwards.
	Local bool `yaml:"local,omitempty" json:"local,omitempty"`
}

// Validate says what is wrong with the model, naming the field.
func (m Model) Validate() error {
	if field, wrong := m.check(); wrong != "" {
		return fmt.Errorf("ecmp: model.%s: %s", field, wrong)
	}
	return nil
}

// check names the field that is wrong, and why; wrong is empty where nothing is.
func (m Model) check() (field, wrong string) {
	switch {
	case m.Kind >= kinds:
		return "kind", fmt.Sprintf("%d is none; there are %s", m.Kind, strings.Join(kindNames[:], ", "))
	case m.Kind == Unknown && m != Model{}:
		return "kind", "missing, with other fields set; there are " + strings.Join(kindNames[1:], ", ")
	case m.Kind == Linux && m.Offset != 0:
		return "offset", "Linux does not rotate its hash; leave it out"
	case m.Kind != Unknown && int(m.Offset) >= m.Bits():
		return "offset", fmt.Sprintf("%d is more than %d, and the hash has %d bits", m.Offset, m.Bits()-1, m.Bits())
	case m.Fields&^AllFields != 0:
		return "fields", fmt.Sprintf("%#x has bits beyond those of %v", uint8(m.Fields), AllFields)
	case m.Kind == Murmur3 && m.Fields&Proto != 0:
		return "fields", "murmur3 has no place for the protocol; leave proto out"
	case m.Kind != Linux && m.Policy != 0:
		return "policy", fmt.Sprintf("%s has none; leave it out", m.Kind)
	case m.Policy != 0 && m.Policy != 1 && m.Policy != 3:
		return "policy", fmt.Sprintf("%d is not supported; there are 1 (the whole 5-tuple) and 3 (chosen fields)", m.Policy)
	case m.Policy == 1 && m.Fields != 0 && m.Fields != AllFields:
		return "fields", "Linux's policy 1 hashes all five; leave fields out, or take policy 3"
	case m.Kind != Linux && m.Local:
		return "local", fmt.Sprintf("%s makes no difference between what is forwarded and what is not; leave it out", m.Kind)
	case m.Kind == Linux && m.Seed == 0:
		return "seed", "missing; at 0 the kernel takes a random one: set net.ipv4.fib_multipath_hash_seed, and give the same here"
	case (m.Kind == CRC16CCITT || m.Kind == CRC16Bisync || m.Kind == XOR16) && m.Seed > 0xFFFF:
		return "seed", fmt.Sprintf("%#x is more than the 16 bits of %s", m.Seed, m.Kind)
	}
	return "", ""
}

// Bits is the width of the hash: 16, 31 or 32; 0 where it is unknown.
func (m Model) Bits() int {
	switch m.Kind {
	case Unknown:
		return 0
	case Murmur3, CRC32:
		return 32
	case Linux:
		return 31
	}
	return 16
}

// fields are what is hashed.
func (m Model) fields() Fields {
	switch {
	case m.Fields != 0:
		return m.Fields
	case m.Kind == Murmur3:
		return AllFields &^ Proto
	}
	return AllFields
}

// rotate applies Offset to a hash.
func (m Model) rotate(h uint32) uint32 {
	if w := m.Bits(); w < 32 {
		return (h>>m.Offset | h<<(w-int(m.Offset))) & (1<<w - 1)
	}
	return bits.RotateLeft32(h, -int(m.Offset))
}

// Hash is the hash of a flow. It allocates nothing. It is 0 where the kind is Unknown.
func (m Model) Hash(t Tuple) uint32 {
	switch {
	case m.Kind.Linear():
		return m.linear(&t)
	case m.Kind == Murmur3:
		return m.murmur(&t)
	case m.Kind == Linux:
		return m.linux(&t)
	}
	return 0
}

// Prepared is a model and a flow but for its source port: what is common to all ports is computed. It holds no pointers and
// may be copied.
type Prepared struct {
	kind   Kind
	rotate uint8
	mask   uint16 // of the source port; 0 where it is not hashed
	murmur murmurState
	linear linearState
	linux  linuxState
}

// Prepare computes what all source ports share. t.SrcPort does not count.
func (m Model) Prepare(t Tuple) Prepared {
	p := Prepared{kind: m.Kind, rotate: m.Offset}
	if m.fields()&SrcPort != 0 {
		p.mask = 0xFFFF
	}
	t.SrcPort = 0
	switch {
	case m.Kind.Linear():
		p.linear.prepare(m, &t)
	case m.Kind == Murmur3:
		p.murmur.prepare(m, &t)
	case m.Kind == Linux:
		p.linux.prepare(m, &t)
	}
	return p
}

// At is the hash with this source port: the model's Hash.
func (p *Prepared) At(port uint16) uint32 {
	switch {
	case p.kind.Linear():
		return p.linear.at(port)
	case p.kind == Murmur3:
		return bits.RotateLeft32(p.murmur.at(port&p.mask), -int(p.rotate))
	case p.kind == Linux:
		return p.linux.at(port & p.mask)
	}
	return 0
}

// Fill computes the hashes of the ports from, from+1 and so on, into all of out. After 65535 comes 0.
func (p *Prepared) Fill(from uint16, out []uint32) {
	if p.kind.Linear() {
		p.linear.fill(from, out)
		return
	}
	var ports [64]uint16
	for len(out) > 0 {
		n := min(len(out), len(ports))
		for i := range ports[:n] {
			ports[i] = from + uint16(i)
		}
		p.each(ports[:n], out)
		from += uint16(n)
		out = out[n:]
	}
}

// each computes the hashes of these ports into out, which is as long at least.
func (p *Prepared) each(ports []uint16, out []uint32) {
	switch {
	case p.kind.Linear():
		p.linear.each(ports, out)
	case p.kind == Murmur3:
		p.murmur.each(ports, p.mask, p.rotate, out)
	case p.kind == Linux:
		p.linux.each(ports, p.mask, out)
	default:
		clear(out[:len(ports)])
	}
}
