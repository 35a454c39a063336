package study

// PaperQPS are the rates of the ARK paper's evaluation.
func PaperQPS() []float64 { return []float64{1, 5, 10, 15, 20, 25, 30} }

// PaperPolicies are those that its table is made with: the paper's two, the product's others, baselines, and the bound.
func PaperPolicies() []string {
	return []string{Base, "ecmp-fixed", "ark", "least", "split", "shoal", "spray", "flowlet", "hedera", "plb", Bound}
}

// isPaper says whether the fabric is the paper's, so that its figures can be compared with. Requests and model may differ.
func (s *Scenario) isPaper() bool {
	d := Defaults()
	s2, d2 := s.Shape, d.Shape
	s2.Rate, s2.Delay = d2.Rate, d2.Delay // sizes go with the rate
	return s2 == d2 && s.Load == 1
}

// Published is one figure of the paper beside ours. Cuts are parts: 0.25 is a quarter less.
type Published struct {
	QPS      float64 `json:"qps"`
	Quantity string  `json:"quantity"`
	Paper    float64 `json:"paper"`
	Ours     Spread  `json:"ours"`
	// Inside says whether the paper's figure is within the percentiles 2.5 to 97.5 of our single runs: the paper's is one
	// run of 1,000 requests. null with too few runs.
	Inside *bool `json:"inside"`
}

// published finds what the paper says about ark among the groups.
func published(groups []Group) []Published {
	var out []Published
	for _, f := range []struct {
		qps      float64
		quantity string
		cut      float64
	}{
		{1, "mean", 0.019}, {1, "p95", 0.012},
		{5, "ttft_mean", 0.02}, // "about 2 %"
		{25, "mean", 0.273}, {25, "p95", 0.340}, {25, "ttft_mean", 0.129},
		{30, "mean", 0.138}, {30, "p95", 0.124}, {30, "ttft_p95", 0.12},
	} {
		for _, g := range groups {
			for i := range g.Policies {
				p := &g.Policies[i]
				if g.QPS != f.qps || p.Name != "ark" || p.Cuts == nil {
					continue
				}
				for _, q := range quantities() {
					if q.name != f.quantity {
						continue
					}
					o := Published{QPS: f.qps, Quantity: f.quantity, Paper: f.cut, Ours: *q.at((*Quantities)(p.Cuts))}
					if low, high := o.Ours.SingleLow, o.Ours.SingleHigh; low != nil && high != nil {
						o.Inside = new(*low <= f.cut && f.cut <= *high)
					}
					out = append(out, o)
				}
			}
		}
	}
	return out
}
