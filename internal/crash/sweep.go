package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Pairs says which second kills a sweep tries.
type Pairs string

const (
	PairsNone   Pairs = "none"
	PairsSparse Pairs = "sparse" // after each append, and around each effect; see sparseFamily
	PairsAll    Pairs = "all"
)

// sparseFamily bounds the stories with two kills of a scenario in which runs start one
// another: there are thousands of them. Sparse pairs are so many of these, by the seed.
const sparseFamily = 150

func (p Pairs) wants(k Kill) bool {
	switch p {
	case PairsAll:
		return true
	case PairsSparse:
		return strings.HasSuffix(k.Label, "/after") || strings.HasPrefix(k.Label, "effect/") && strings.HasSuffix(k.Label, "/before")
	}
	return false
}

// Row is what a sweep over one scenario has found.
type Row struct {
	Name      string
	Processes int // without kills
	Appends   int
	Points    int
	Singles   int // stories with one kill
	Doubles   int // stories with two
	Missed    int // stories in which a kill came too late
	InDoubt   int // calls that a person was asked about
	Told      int // writes whose tool knew what became of them
	Failed    int
}

// Add sums rows up.
func (r *Row) Add(o Row) {
	r.Processes += o.Processes
	r.Appends += o.Appends
	r.Points += o.Points
	r.Singles += o.Singles
	r.Doubles += o.Doubles
	r.Missed += o.Missed
	r.InDoubt += o.InDoubt
	r.Told += o.Told
	r.Failed += o.Failed
}

// Sweep plays a scenario with a kill at every point, and with a second kill at the
// points of the processes that follow that pairs wants. failed is called for each story that went
// wrong.
func (h *Harness) Sweep(ctx context.Context, sc *Scenario, pairs Pairs, jobs int, r *rand.Rand, failed func(*Story)) (Row, error) {
	row := Row{Name: sc.Name}
	base, err := h.Play(ctx, sc, nil, nil)
	if err != nil {
		return row, err
	}
	if len(base.Problems) > 0 {
		failed(base)
		return row, fmt.Errorf("scenario %s fails without a kill", sc.Name)
	}
	row.Processes = len(base.Steps)
	for _, step := range base.Steps {
		row.Points += len(step.Points)
		for _, p := range step.Points {
			if len(p.Kinds) > 0 && strings.HasSuffix(p.Label, "/before") {
				row.Appends++
			}
		}
	}
	var singles, doubles []Tale
	for _, k := range base.Deaths(0, r) {
		singles = append(singles, Tale{sc, []Kill{k}, &base.Outcome})
	}
	see := func(s *Story) bool {
		row.see(s)
		if len(s.Problems) > 0 {
			failed(s)
		} else if first := s.Kills[0]; len(s.Kills) == 1 && s.Reached() && pairs.wants(first) {
			for _, k := range s.Deaths(first.Step+1, r) {
				if pairs.wants(k) {
					doubles = append(doubles, Tale{sc, []Kill{first, k}, &base.Outcome})
				}
			}
		}
		return true
	}
	if err := h.PlayAll(ctx, singles, jobs, see); err != nil {
		return row, err
	}
	if pairs == PairsSparse && sc.Family() && len(doubles) > sparseFamily {
		r.Shuffle(len(doubles), func(i, j int) { doubles[i], doubles[j] = doubles[j], doubles[i] })
		doubles = doubles[:sparseFamily]
	}
	return row, h.PlayAll(ctx, doubles, jobs, see)
}

func (r *Row) see(s *Story) {
	if len(s.Kills) == 1 {
		r.Singles++
	} else {
		r.Doubles++
	}
	if !s.Reached() {
		r.Missed++
	}
	if len(s.Problems) > 0 {
		r.Failed++
	}
	r.InDoubt += s.InDoubt
	r.Told += s.Told
}
