package agent

import (
	"sort"

	"shoal/internal/gateway"
	"shoal/internal/node"
	"shoal/internal/peer"
)

// directory is the models that the live peers serve, by name and alias. It is immutable: a new one is made whenever what
// peers say about themselves changes.
type directory struct {
	generation uint64 // of the node, that it was made from
	byName     map[string]gateway.ModelEntry
	models     []gateway.ModelEntry // sorted by name
}

func newDirectory(n *node.Node) *directory {
	d := &directory{generation: n.Generation(), byName: make(map[string]gateway.ModelEntry)}
	aliases := make(map[string]string)
	n.EachServing(func(id peer.ID, info *peer.Info) {
		for i := range info.Models {
			m := &info.Models[i]
			e, known := d.byName[m.Name]
			if !known {
				e = gateway.ModelEntry{Name: m.Name, Parent: m.Parent, Context: m.Context, Salts: true}
			}
			if e.Context < 0 || m.Context >= 0 && m.Context < e.Context { // the least: any peer may serve it
				e.Context = m.Context
			}
			e.Emulated = e.Emulated || info.Emulated
			e.Salts = e.Salts && info.Salts
			d.byName[m.Name] = e
			for _, a := range m.Aliases {
				if other, taken := aliases[a]; !taken || m.Name < other { // peers that disagree: the lesser name, everywhere
					aliases[a] = m.Name
				}
			}
		}
	})
	for _, e := range d.byName {
		d.models = append(d.models, e)
	}
	sort.Slice(d.models, func(i, j int) bool { return d.models[i].Name < d.models[j].Name })
	for a, name := range aliases {
		if _, taken := d.byName[a]; !taken {
			d.byName[a] = d.byName[name]
		}
	}
	return d
}
