package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/zeebo/xxh3"

	"shoal/internal/sim/study"
	"shoal/internal/term"
)

// simCommand is `shoal sim`: what can be tried without a network or engines.
func simCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "sim",
		Short: "Simulators that drive the product's own code",
		Long: `Simulators that drive the product's own code in virtual time: the same seed gives the same run, on any machine and any
number of cores.`,
		Example: "  shoal sim fabric --policy ecmp,ark,shoal --qps 25\n  shoal sim fabric paper --plots plots",
	}
	c.AddCommand(simFabricCommand())
	return c
}

// simFlags are what all commands that run studies have.
type simFlags struct {
	settings []simSetting // as given, in their order
	file     string
	dir      string
	output   string
	plots    string
	workers  int
}

// simSetting is one flag that the command line has.
type simSetting struct{ name, value string }

// simValue is a flag that is kept until the scenario file has been read: flags count more than the file.
type simValue struct {
	f     *simFlags
	name  string
	kind  string
	given string
}

func (v *simValue) String() string { return v.given }
func (v *simValue) Type() string   { return v.kind }

// Set tries the value, so that a wrong one is said at once.
func (v *simValue) Set(s string) error {
	d := study.NewDraft()
	if err := d.Set(v.name, s); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "study: "))
	}
	v.given = s
	v.f.settings = append(v.f.settings, simSetting{v.name, s})
	return nil
}

// add makes a flag of one setting of a draft; shown is its default.
func (f *simFlags) add(c *cobra.Command, name, kind, shown, help string) {
	g := c.Flags().VarPF(&simValue{f: f, name: name, kind: kind, given: shown}, name, "", help)
	g.DefValue = shown
	if kind == "bool" {
		g.NoOptDefVal = "true"
	}
}

// fields adds flags for some fields of a scenario.
func (f *simFlags) fields(c *cobra.Command, defaults study.Draft, names ...string) {
	c.SilenceUsage, c.SilenceErrors = true, true
	c.Flags().SortFlags = false
	for _, name := range names {
		x := study.FieldByName(name)
		kind := "value"
		if x.Bool {
			kind = "bool"
		}
		f.add(c, name, kind, x.Get(&defaults.Scenario), x.Help)
	}
}

// bind adds a flag for everything of a draft but what is named in without, shown with the values of defaults.
func (f *simFlags) bind(c *cobra.Command, defaults study.Draft, without ...string) {
	var rates []string
	for _, q := range defaults.QPS {
		rates = append(rates, fmt.Sprint(q))
	}
	s := c.Flags()
	s.SortFlags = false
	for _, g := range []struct{ name, kind, shown, help string }{
		{"policy", "list", strings.Join(defaults.Policies, ","), "policies to compare; all is " + strings.Join(study.Policies(), ",")},
		{"qps", "list", strings.Join(rates, ","), "transfers a second"},
		{"seeds", "int", fmt.Sprint(defaults.Seeds), "workloads for each rate: seeds 1 to so many"},
		{"sweep", "field=list", "", "compare values of a field: delay=0s,5ms,50ms"},
	} {
		if !slices.Contains(without, g.name) {
			f.add(c, g.name, g.kind, g.shown, g.help)
		}
	}
	if !slices.Contains(without, "file") {
		s.StringVar(&f.file, "file", "", "scenario `file` (YAML) with the names of these flags; flags count more")
	}
	f.fields(c, defaults, slices.DeleteFunc(study.FieldNames(), func(name string) bool { return slices.Contains(without, name) })...)
	s.StringVar(&f.dir, "dir", "sim-results", "directory for results: what is there is not run again; empty: keep nothing")
	s.StringVar(&f.output, "output", "table", "table, json or csv")
	if !slices.Contains(without, "plots") {
		s.StringVar(&f.plots, "plots", "", "`directory` for plots (SVG)")
	}
	s.IntVar(&f.workers, "workers", 0, "runs at once (default: one a core)")
}

// draft is the defaults, changed by the file and then by the flags.
func (f *simFlags) draft(d study.Draft) (study.Draft, error) {
	if f.output != "table" && f.output != "json" && f.output != "csv" {
		return d, fmt.Errorf("sim: --output %q is none of table, json, csv", f.output)
	}
	if f.file != "" {
		if err := d.Load(f.file); err != nil {
			return d, err
		}
	}
	for _, s := range f.settings {
		if err := d.Set(s.name, s.value); err != nil {
			return d, err
		}
	}
	return d, nil
}

// given says whether the command line has a flag.
func (f *simFlags) given(name string) bool {
	return slices.ContainsFunc(f.settings, func(s simSetting) bool { return s.name == name })
}

// programVersion is the version and the digest of the program's file: two builds of one version can differ.
func programVersion() string {
	name, err := os.Executable()
	if err != nil {
		return buildVersion()
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return buildVersion()
	}
	return fmt.Sprintf("%s (%08x)", buildVersion(), uint32(xxh3.Hash(b)))
}

// told is how often progress is told where nobody looks at a terminal.
const told = 30 * time.Second

// run makes the runs of a plan.
func (f *simFlags) run(cmd *cobra.Command, p *study.Plan) ([]*study.Result, error) {
	p.Program = programVersion()
	o := term.New(cmd.ErrOrStderr())
	last := time.Now()
	results, err := study.Run(cmd.Context(), p, study.RunConfig{Dir: f.dir, Workers: f.workers, Progress: func(p study.Progress) {
		o.Progress("sim: " + p.String())
		if !o.Terminal() && time.Since(last) >= told {
			last = time.Now()
			o.Println("sim:", p.String())
		}
	}})
	o.Progress("")
	if errors.Is(err, context.Canceled) {
		done := 0
		for _, r := range results {
			if r != nil {
				done++
			}
		}
		if f.dir != "" {
			o.Printf("sim: interrupted: %d of %d runs are kept in %s; the same command goes on\n", done, len(results), f.dir)
		} else {
			o.Printf("sim: interrupted: %d of %d runs were made, and nothing was kept, since --dir is empty\n", done, len(results))
		}
	}
	return results, err
}

// report is run, and what it has shown.
func (f *simFlags) report(cmd *cobra.Command, p *study.Plan) (*study.Report, error) {
	results, err := f.run(cmd, p)
	if err != nil {
		return nil, err
	}
	return study.NewReport(p, results), nil
}

// write prints reports as people or programs want them, and draws them; table is for people.
func (f *simFlags) write(cmd *cobra.Command, table func(*term.Output), reports ...*study.Report) error {
	if err := f.print(cmd, table, reports...); err != nil {
		return err
	}
	return f.draw(cmd, reports...)
}

func (f *simFlags) print(cmd *cobra.Command, table func(*term.Output), reports ...*study.Report) error {
	switch f.output {
	case "json":
		return study.WriteJSON(cmd.OutOrStdout(), reports...)
	case "csv":
		return study.WriteCSV(cmd.OutOrStdout(), reports...)
	}
	table(term.New(cmd.OutOrStdout()))
	return nil
}

// draw makes the plots, if there shall be some. Reports of one kind have files of the same names.
func (f *simFlags) draw(cmd *cobra.Command, reports ...*study.Report) error {
	if f.plots == "" {
		return nil
	}
	said := cmd.OutOrStdout()
	if f.output != "table" {
		said = cmd.ErrOrStderr()
	}
	for _, r := range reports {
		files, err := r.WritePlots(f.plots)
		if err != nil {
			return err
		}
		for _, name := range files {
			fmt.Fprintln(said, "plot:", name)
		}
	}
	return nil
}
