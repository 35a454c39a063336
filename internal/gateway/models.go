package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"shoal/internal/peer"
)

// model is one entry of the list of models, in OpenAI's shape with what vLLM and we add.
type model struct {
	ID       string `json:"id"`
	Object   string `json:"object"`
	Created  int64  `json:"created"`
	OwnedBy  string `json:"owned_by"`
	Root     string `json:"root,omitempty"`   // where id is an alias: the name that engines know
	Parent   string `json:"parent,omitempty"` // base model of a LoRA adapter
	Context  int    `json:"max_model_len,omitempty"`
	Emulated bool   `json:"emulated,omitempty"`
}

func describe(id string, e *ModelEntry) model {
	m := model{ID: id, Object: "model", OwnedBy: "shoal", Parent: e.Parent, Emulated: e.Emulated}
	if id != e.Name {
		m.Root = e.Name
	}
	if e.Context != peer.Unknown {
		m.Context = e.Context
	}
	return m
}

// serveModels answers /v1/models, and /v1/models/{id}, where the id may contain slashes.
func (g *Gateway) serveModels(w http.ResponseWriter, r *http.Request) (status int) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return notAllowed(w, "GET, HEAD")
	}
	var answer any
	if id, one := strings.CutPrefix(r.URL.Path, pathModels+"/"); one && id != "" {
		e, ok := g.shoal.Resolve(id)
		if !ok {
			unknownModel(id).write(w)
			return http.StatusNotFound
		}
		answer = describe(id, &e)
	} else {
		list := []model{}
		for _, e := range g.shoal.Models() {
			list = append(list, describe(e.Name, &e))
		}
		answer = struct {
			Object string  `json:"object"`
			Data   []model `json:"data"`
		}{"list", list}
	}
	b, err := json.Marshal(answer)
	if err != nil {
		panic("gateway: a list of models does not become JSON: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)+1))
	w.Write(append(b, '\n'))
	return http.StatusOK
}

func notAllowed(w http.ResponseWriter, allow string) (status int) {
	w.Header().Set("Allow", allow)
	p := &problem{status: http.StatusMethodNotAllowed, kind: invalidRequest, code: "method_not_allowed", message: "This URL takes " + allow + " only."}
	p.write(w)
	return p.status
}
