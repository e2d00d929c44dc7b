package ui

import (
	"slices"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

// timeline shows when a run did what: a bar for each request to a model, each call and each wait. It is as wide as the
// time in which something happened; long waits are shortened.
type timeline struct {
	Run     toolcrib.RunID
	Bars    []bar
	Earlier toolcrib.Seq
	Total   time.Duration
	Tree    *branch
}

// bar is a line of a timeline. From and Width are in thousandths.
type bar struct {
	Kind  string // model, call, or wait
	To    string // element of the story
	Name  string
	State string
	Began time.Time
	Took  time.Duration
	From  int
	Width int
}

// branch is a run with the runs below it.
type branch struct {
	service.Run
	Shown    string
	Children []branch
	More     bool
}

const (
	maxBranches = 200 // of a tree
	maxLevels   = 5
	widest      = 1000
	waitWidth   = 40 // of a wait that is longer
	leastWidth  = 4
)

func (p *page) timelineOf(run service.Run, s *story) (*timeline, error) {
	t := &timeline{Run: run.ID, Earlier: s.Earlier}
	now := time.Now()
	for _, i := range s.Items {
		if b, ok := barOf(i, now); ok {
			t.Bars = append(t.Bars, b)
		}
	}
	slices.SortStableFunc(t.Bars, func(a, b bar) int { return a.Began.Compare(b.Began) })
	t.scale()
	left := maxBranches
	tree, err := p.branchOf(run, maxLevels, &left)
	t.Tree = &tree
	return t, err
}

// barOf returns the bar of an entry; not all have one. What has not ended ends now.
func barOf(i *item, now time.Time) (b bar, ok bool) {
	switch {
	case i.Round != nil && !i.Round.Condense:
		b = bar{Kind: "model", Name: i.Round.Model, Began: i.At, Took: i.Round.Took}
		if i.Round.Open {
			b.Took = now.Sub(i.At)
		}
	case i.Call != nil && !i.Call.Began.IsZero(), i.Call != nil && i.Call.Child != nil:
		c := i.Call
		b = bar{Kind: "call", Name: c.Name, State: c.State, Began: c.Began, Took: now.Sub(c.Began)}
		if b.Began.IsZero() {
			b.Began = i.At
		}
		if !c.Ended.IsZero() {
			b.Took = c.Ended.Sub(b.Began)
		}
	case i.Call != nil:
		b = bar{Kind: "call", Name: i.Call.Name, State: i.Call.State, Began: i.At}
	case i.Ask != nil:
		b = bar{Kind: "wait", State: "ask", Began: i.At, Took: now.Sub(i.At)}
		if n := len(i.Ask.Decisions); n > 0 && !i.Ask.Open {
			b.Took = i.Ask.Decisions[n-1].At.Sub(i.At)
		} else if !i.Ask.Open {
			b.Took = 0
		}
	default:
		return b, false
	}
	b.To, b.Took = i.ID, max(b.Took, 0)
	return b, true
}

// scale places the bars. The time in which a model or a call is at work is shown to scale, and each time between with
// the same width, however long it was.
func (t *timeline) scale() {
	var at []time.Time
	for _, b := range t.Bars {
		at = append(at, b.Began, b.Began.Add(b.Took))
	}
	slices.SortFunc(at, time.Time.Compare)
	at = slices.CompactFunc(at, time.Time.Equal)
	works := make([]bool, len(at)) // whether something is at work from this moment to the next
	pauses := 0
	for i := range at[:max(len(at)-1, 0)] {
		works[i] = slices.ContainsFunc(t.Bars, func(b bar) bool {
			return b.Kind != "wait" && !b.Began.After(at[i]) && !b.Began.Add(b.Took).Before(at[i+1])
		})
		if works[i] {
			t.Total += at[i+1].Sub(at[i])
		} else {
			pauses++
		}
	}
	pause := float64(min(waitWidth, widest/2/max(pauses, 1)))
	room := widest - pause*float64(pauses)
	place := map[time.Time]int{}
	sum := 0.0
	for i, when := range at {
		if place[when] = int(sum); works[i] {
			sum += room * float64(at[min(i+1, len(at)-1)].Sub(when)) / float64(max(t.Total, 1))
		} else {
			sum += pause
		}
	}
	for i := range t.Bars {
		b := &t.Bars[i]
		b.From = min(place[b.Began], widest-leastWidth)
		b.Width = max(place[b.Began.Add(b.Took)]-b.From, leastWidth)
	}
}

// branchOf returns a run with the runs below it. left is the number of runs that a tree may still have.
func (p *page) branchOf(run service.Run, levels int, left *int) (branch, error) {
	b := branch{Run: run, Shown: status(&run)}
	if levels == 0 || *left <= 0 {
		return b, nil
	}
	below, next, err := p.Service.Runs(p, p.Who, service.RunsQuery{Filter: store.Filter{Parent: run.ID, Limit: *left}})
	if err != nil {
		return b, err
	}
	b.More = next != ""
	*left -= len(below)
	for _, one := range slices.Backward(below) {
		child, err := p.branchOf(one, levels-1, left)
		if err != nil {
			return b, err
		}
		b.Children = append(b.Children, child)
	}
	return b, nil
}
