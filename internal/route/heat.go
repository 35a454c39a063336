package route

// heat tells popular prefixes from those of one conversation: it counts, over about the last thousand decisions of this
// peer, how many prompts had the same block as the last one that anybody holds. A conversation's turns have a new such
// block each; the prompts of one system prompt or few-shot subject share it.
//
// It is a fixed table, each slot of which belongs to one key: another key that falls on it first wears it down, so that
// the popular ones stay. What it forgets or confuses makes a price a little wrong and nothing else. The zero value is
// ready.
type heat struct {
	slots [heatSlots]heatSlot
	added int
}

type heatSlot struct {
	key uint64
	n   uint32
}

const (
	heatSlots  = 4096 // 64 kB; with a window of 1,024 most slots are free
	heatBits   = 12
	heatWindow = 1024 // decisions after which every count is halved
)

// at is the slot of a key. Keys are hashes already, of which the upper bits serve as well as any.
func (h *heat) at(key uint64) *heatSlot { return &h.slots[key>>(64-heatBits)] }

// count is how many of the last decisions had the key; 0 for the key 0, which stands for no match anywhere.
func (h *heat) count(key uint64) int64 {
	if s := h.at(key); key != 0 && s.key == key {
		return int64(s.n)
	}
	return 0
}

func (h *heat) add(key uint64) {
	if key == 0 {
		return
	}
	switch s := h.at(key); {
	case s.key == key:
		s.n++
	case s.n > 0:
		s.n--
	default:
		*s = heatSlot{key, 1}
	}
	if h.added++; h.added >= heatWindow {
		h.added = 0
		for i := range h.slots {
			h.slots[i].n /= 2
		}
	}
}
