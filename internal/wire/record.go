package wire

import (
	"fmt"
	"time"

	"github.com/fxamacker/cbor/v2"

	"shoal/internal/peer"
)

// Info and Load are CBOR maps with integer keys: their fields come and go with versions. A key that is absent leaves the
// field unknown (or at its prior); a key that is not known is skipped. Keys are never given a new meaning.

// maxModels and maxAliases bound what one peer publishes; what is beyond them is left out.
const (
	maxModels  = 128
	maxAliases = 16
)

// infoRecord is peer.Info as it travels.
type infoRecord struct {
	Version     string        `cbor:"1,keyasint,omitempty"`
	Engine      string        `cbor:"2,keyasint,omitempty"`
	Emulated    bool          `cbor:"3,keyasint,omitempty"`
	Role        uint8         `cbor:"4,keyasint,omitempty"`
	Models      []modelRecord `cbor:"5,keyasint,omitempty"`
	Salts       bool          `cbor:"6,keyasint,omitempty"`
	CacheKind   uint8         `cbor:"7,keyasint,omitempty"`
	Usable      uint8         `cbor:"8,keyasint,omitempty"`
	CacheTokens int64         `cbor:"9,keyasint"`
	BlockTokens int64         `cbor:"10,keyasint"`
	Limit       int64         `cbor:"11,keyasint,omitempty"`
	Slots       int64         `cbor:"12,keyasint"`
	EpochStart  int64         `cbor:"13,keyasint,omitempty"`
	EpochCount  int64         `cbor:"14,keyasint,omitempty"`
	Gateway     string        `cbor:"15,keyasint,omitempty"`
	Transfer    string        `cbor:"16,keyasint,omitempty"`
}

type modelRecord struct {
	Name    string   `cbor:"1,keyasint"`
	Aliases []string `cbor:"2,keyasint,omitempty"`
	Parent  string   `cbor:"3,keyasint,omitempty"`
	Context int64    `cbor:"4,keyasint"`
}

// loadRecord is peer.Load as it travels; times in nanoseconds.
type loadRecord struct {
	Up            bool  `cbor:"1,keyasint,omitempty"`
	Draining      bool  `cbor:"2,keyasint,omitempty"`
	PushBack      bool  `cbor:"3,keyasint,omitempty"`
	InFlight      int64 `cbor:"4,keyasint,omitempty"`
	Running       int64 `cbor:"5,keyasint"`
	Waiting       int64 `cbor:"6,keyasint"`
	QueuedTokens  int64 `cbor:"7,keyasint,omitempty"`
	CachePermille int64 `cbor:"8,keyasint"`
	ReusePermille int64 `cbor:"9,keyasint,omitempty"`
	Work          int64 `cbor:"10,keyasint,omitempty"`
	Prefill       int64 `cbor:"11,keyasint"`
	Decode        int64 `cbor:"12,keyasint"`
	Service       int64 `cbor:"13,keyasint"`
	MilliTokBytes int64 `cbor:"14,keyasint"`
	Samples       int64 `cbor:"15,keyasint,omitempty"`
}

// codec is fixed: the options of the CBOR library.
var codec = newCodec()

type cborCodec struct {
	enc cbor.EncMode
	dec cbor.DecMode
}

func newCodec() cborCodec {
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err)
	}
	dec, err := cbor.DecOptions{
		MaxNestedLevels: 8, MaxArrayElements: 1024, MaxMapPairs: 256, IndefLength: cbor.IndefLengthForbidden,
		TagsMd: cbor.TagsForbidden, DupMapKey: cbor.DupMapKeyEnforcedAPF,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return cborCodec{enc, dec}
}

func (c cborCodec) append(dst []byte, record any) []byte {
	b, err := c.enc.Marshal(record)
	if err != nil {
		panic(fmt.Sprintf("wire: encoding %T: %v", record, err))
	}
	return append(dst, b...)
}

func (c cborCodec) decode(b []byte, record any) error {
	if err := within("record", "bytes", len(b), MaxRecord); err != nil {
		return err
	}
	return c.dec.Unmarshal(b, record)
}

// AppendInfo appends an Info. Models and aliases beyond what fits are left out.
func AppendInfo(dst []byte, i *peer.Info) []byte {
	r := infoRecord{
		Version: clip(i.Version, MaxModel), Engine: clip(i.Engine, MaxModel), Emulated: i.Emulated, Role: uint8(i.Role), Salts: i.Salts,
		CacheKind: uint8(i.Cache.Kind), Usable: uint8(i.Cache.Usable), CacheTokens: i.Cache.Tokens, BlockTokens: int64(i.Cache.BlockTokens),
		Limit: int64(i.Limit), Slots: int64(i.Slots), EpochStart: i.Epoch.Start, EpochCount: i.Epoch.Counter, Gateway: clip(i.Gateway, MaxModel),
		Transfer: clip(i.Transfer, MaxModel),
	}
	room := MaxRecord - 2048
	for _, m := range i.Models {
		if len(r.Models) == maxModels || len(m.Name) > MaxModel || len(m.Parent) > MaxModel {
			continue
		}
		mr := modelRecord{Name: m.Name, Parent: m.Parent, Context: int64(m.Context)}
		size := 32 + len(m.Name) + len(m.Parent)
		for _, a := range m.Aliases {
			if len(mr.Aliases) == maxAliases || len(a) > MaxModel || size+len(a)+4 > room {
				continue
			}
			mr.Aliases = append(mr.Aliases, a)
			size += len(a) + 4
		}
		if size > room {
			break
		}
		room -= size
		r.Models = append(r.Models, mr)
	}
	return codec.append(dst, &r)
}

// DecodeInfo reads an Info.
func DecodeInfo(b []byte, i *peer.Info) error {
	r := infoRecord{CacheTokens: peer.Unknown, BlockTokens: 1, Slots: peer.Unknown}
	if err := codec.decode(b, &r); err != nil {
		return fmt.Errorf("wire: info: %w", err)
	}
	if len(r.Models) > maxModels || len(r.Version) > MaxModel || len(r.Engine) > MaxModel || len(r.Gateway) > MaxModel || len(r.Transfer) > MaxModel {
		return fmt.Errorf("wire: info: %w: %d models, or a text is too long", ErrLimit, len(r.Models))
	}
	*i = peer.Info{
		Version: r.Version, Engine: r.Engine, Emulated: r.Emulated, Role: peer.Role(r.Role), Salts: r.Salts,
		Cache: peer.Cache{Kind: peer.CacheKind(r.CacheKind), Usable: peer.Usable(r.Usable), Tokens: clamp(r.CacheTokens, peer.Unknown, 1<<40),
			BlockTokens: int(clamp(r.BlockTokens, 1, 1<<20))},
		Limit: int(clamp(r.Limit, 0, 1<<20)), Slots: int(clamp(r.Slots, peer.Unknown, 1<<20)),
		Epoch: peer.Epoch{Start: r.EpochStart, Counter: r.EpochCount}, Gateway: r.Gateway, Transfer: r.Transfer,
	}
	for _, m := range r.Models {
		if len(m.Name) > MaxModel || len(m.Parent) > MaxModel || len(m.Aliases) > maxAliases {
			return fmt.Errorf("wire: info: %w: a model's name, parent or list of aliases is too long", ErrLimit)
		}
		for _, a := range m.Aliases {
			if len(a) > MaxModel {
				return fmt.Errorf("wire: info: %w: an alias is too long", ErrLimit)
			}
		}
		i.Models = append(i.Models, peer.Model{Name: m.Name, Aliases: m.Aliases, Parent: m.Parent, Context: int(clamp(m.Context, peer.Unknown, 1<<40))})
	}
	return nil
}

// AppendLoad appends a Load.
func AppendLoad(dst []byte, l *peer.Load) []byte {
	return codec.append(dst, &loadRecord{
		Up: l.Up, Draining: l.Draining, PushBack: l.PushBack, InFlight: int64(l.InFlight), Running: int64(l.Running), Waiting: int64(l.Waiting),
		QueuedTokens: l.QueuedTokens, CachePermille: int64(l.CachePermille), ReusePermille: int64(l.ReusePermille), Work: int64(l.Work),
		Prefill: int64(l.Prefill), Decode: int64(l.Decode), Service: int64(l.Service), MilliTokBytes: l.MilliTokBytes, Samples: int64(l.Samples),
	})
}

// DecodeLoad reads a Load. Numbers that no engine has are brought into bounds in which sums of products do not overflow.
func DecodeLoad(b []byte, l *peer.Load) error {
	r := loadRecord{
		Running: peer.Unknown, Waiting: peer.Unknown, CachePermille: peer.Unknown, Prefill: int64(peer.PriorPrefill),
		Decode: int64(peer.PriorDecode), Service: int64(peer.PriorService), MilliTokBytes: peer.PriorMilliTokBytes,
	}
	if err := codec.decode(b, &r); err != nil {
		return fmt.Errorf("wire: load: %w", err)
	}
	const many = 1 << 30
	*l = peer.Load{
		Up: r.Up, Draining: r.Draining, PushBack: r.PushBack,
		InFlight: int(clamp(r.InFlight, 0, many)), Running: int(clamp(r.Running, peer.Unknown, many)), Waiting: int(clamp(r.Waiting, peer.Unknown, many)),
		QueuedTokens: clamp(r.QueuedTokens, 0, many), CachePermille: int(clamp(r.CachePermille, peer.Unknown, 1000)),
		ReusePermille: int(clamp(r.ReusePermille, 0, 1000)), Work: duration(r.Work, 0, 1000*time.Hour),
		Prefill: duration(r.Prefill, 1, time.Second), Decode: duration(r.Decode, 1, time.Minute), Service: duration(r.Service, 1, time.Hour),
		MilliTokBytes: clamp(r.MilliTokBytes, 1, 1<<20), Samples: int(clamp(r.Samples, 0, many)),
	}
	return nil
}

func clamp(x, least, most int64) int64 { return min(max(x, least), most) }

func duration(ns int64, least, most time.Duration) time.Duration {
	return time.Duration(clamp(ns, int64(least), int64(most)))
}
