package study

import (
	"testing"
	"time"
)

// figurePlan is the paper's evaluation at two rates over twenty seeds, as a fluid, with control messages that take 5 ms.
func figurePlan(policy string, qps float64) *Plan {
	d := NewDraft()
	d.Policies, d.QPS, d.Seeds = []string{Base, policy}, []float64{qps}, 20
	d.Scenario.Control.Delay = 5 * time.Millisecond
	d.Scenario.Control.Sample = 0
	p, err := d.Plan()
	if err != nil {
		panic(err)
	}
	return p
}

// cutFigure reports the mean cut of one quantity, in percent.
func cutFigure(b *testing.B, policy string, qps float64, of func(*Cuts) Spread) {
	var percent float64
	for b.Loop() {
		p := figurePlan(policy, qps)
		results, err := Run(b.Context(), p, RunConfig{})
		if err != nil {
			b.Fatal(err)
		}
		percent = 100 * of(NewReport(p, results).find(0, qps, policy).Cuts).Mean
	}
	b.ReportMetric(percent, "percent")
}

func meanCut(c *Cuts) Spread { return c.Mean }
func p95Cut(c *Cuts) Spread  { return c.P95 }

func BenchmarkFigure_fct_cut_q25_mean_percent(b *testing.B) { cutFigure(b, "shoal", 25, meanCut) }
func BenchmarkFigure_fct_cut_q25_p95_percent(b *testing.B)  { cutFigure(b, "shoal", 25, p95Cut) }
func BenchmarkFigure_fct_cut_q30_mean_percent(b *testing.B) { cutFigure(b, "shoal", 30, meanCut) }
func BenchmarkFigure_fct_cut_q30_p95_percent(b *testing.B)  { cutFigure(b, "shoal", 30, p95Cut) }
func BenchmarkFigure_ark_cut_q25_mean_percent(b *testing.B) { cutFigure(b, "ark", 25, meanCut) }
