package study

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Draft is a plan as people write it: in a scenario file, by flags, or in both. Start from NewDraft.
type Draft struct {
	Title    string
	Policies []string
	QPS      []float64
	Seeds    int // 1 to so many
	Scenario Scenario
	// Field and Values are a sweep; an empty field: none.
	Field  string
	Values []string
}

// NewDraft is a comparison at the rate where ECMP suffers most in the paper.
func NewDraft() Draft {
	return Draft{Policies: []string{Base, "ark", "least", "shoal", Bound}, QPS: []float64{25}, Seeds: 5, Scenario: Defaults()}
}

// Plan makes the plan of it.
func (d *Draft) Plan() (*Plan, error) {
	if d.Seeds < 1 || d.Seeds > MaxSeeds {
		return nil, fmt.Errorf("study: seeds is %d; give 1 to %d", d.Seeds, MaxSeeds)
	}
	p := &Plan{Title: d.Title, Policies: d.Policies, QPS: d.QPS, Seeds: Seeds(d.Seeds), Variants: []Variant{{Scenario: d.Scenario}}}
	if d.Field != "" {
		v, err := SweepOver(d.Scenario, d.Field, d.Values)
		if err != nil {
			return nil, err
		}
		p.Sweep, p.Variants = d.Field, v
	}
	return p, p.Validate()
}

// Set sets one thing by its name: title, policy (all: every one), qps, seeds, sweep (field=value,value), or a field of the scenario.
func (d *Draft) Set(name, value string) error {
	switch name {
	case "title":
		d.Title = value
	case "policy":
		if d.Policies = list(value); len(d.Policies) == 1 && d.Policies[0] == "all" {
			d.Policies = Policies()
		}
	case "qps":
		d.QPS = nil
		for _, s := range list(value) {
			v, err := strconv.ParseFloat(s, 64)
			if err != nil {
				return fmt.Errorf("study: qps is %.40q: give numbers", s)
			}
			d.QPS = append(d.QPS, v)
		}
	case "seeds":
		n, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("study: seeds is %.40q: give a whole number", value)
		}
		d.Seeds = n
	case "sweep":
		field, values, ok := strings.Cut(value, "=")
		if !ok {
			return fmt.Errorf("study: sweep is %.40q: give a field and its values, as in delay=0s,5ms", value)
		}
		d.Field, d.Values = strings.TrimSpace(field), list(values)
	default:
		f := FieldByName(name)
		if f == nil {
			return fmt.Errorf("study: unknown field %.40q; the fields are title, policy, qps, seeds, sweep, %s", name, strings.Join(FieldNames(), ", "))
		}
		return f.Set(&d.Scenario, value)
	}
	return nil
}

func list(s string) []string {
	var out []string
	for _, w := range strings.Split(s, ",") {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}

// maxFile bounds a scenario file, in bytes.
const maxFile = 1 << 20

// Load reads a scenario file (YAML) over d: the names of Set, and `sweep: {field: ..., values: [...]}`. What is wrong is
// said with its line.
func (d *Draft) Load(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("study: scenario: %w", err)
	}
	if len(b) > maxFile {
		return fmt.Errorf("study: scenario %s: longer than %d bytes", path, maxFile)
	}
	var doc, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(b))
	if err := decoder.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return fmt.Errorf("study: scenario %s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return fmt.Errorf("study: scenario %s: a second YAML document; one is enough", path)
	}
	at := func(n *yaml.Node, err error) error {
		return fmt.Errorf("study: scenario %s, line %d: %s", path, n.Line, strings.TrimPrefix(err.Error(), "study: "))
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return at(root, errors.New("not a list of fields (name: value)"))
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if seen[key.Value] {
			return at(key, fmt.Errorf("%s is given twice", key.Value))
		}
		seen[key.Value] = true
		if key.Value == "sweep" && value.Kind == yaml.MappingNode {
			if err := d.loadSweep(value); err != nil {
				return at(value, err)
			}
			continue
		}
		text, err := scalars(value)
		if err == nil {
			err = d.Set(key.Value, text)
		}
		if err != nil {
			return at(key, err)
		}
	}
	return nil
}

func (d *Draft) loadSweep(n *yaml.Node) error {
	for i := 0; i+1 < len(n.Content); i += 2 {
		text, err := scalars(n.Content[i+1])
		if err != nil {
			return err
		}
		switch key := n.Content[i].Value; key {
		case "field":
			d.Field = text
		case "values":
			d.Values = list(text)
		default:
			return fmt.Errorf("unknown field sweep.%.40s; give field and values", key)
		}
	}
	if d.Field == "" {
		return errors.New("sweep without a field")
	}
	return nil
}

// scalars is a value, or a list of them, as text with commas.
func scalars(n *yaml.Node) (string, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return "", nil
		}
		return n.Value, nil
	case yaml.SequenceNode:
		var words []string
		for _, c := range n.Content {
			if c.Kind != yaml.ScalarNode || strings.Contains(c.Value, ",") {
				return "", errors.New("a list of something else than plain values")
			}
			words = append(words, c.Value)
		}
		return strings.Join(words, ","), nil
	}
	return "", errors.New("neither a value nor a list of values")
}
