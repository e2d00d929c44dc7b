package ui

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/toolcrib/toolcrib/store"
)

// plot is a plot of a measure in SVG: columns for days, otherwise bars. All values are in the table of the page, too.
// Places are in percent of the width, so that a plot fits any window and its texts keep their size.
type plot struct {
	Measure string // name of the texts
	Unit    string // money, duration or number
	Parts   []plotPart
	Columns bool
	Marks   []plotMark
	Lines   []plotLine
	Ticks   []plotTick // labels below columns
	Height  int
	Base    int // where columns stand
	Others  int // further rows, which the last bar sums up
	Unknown bool
}

// plotPart is one of the values that a mark adds up, with a fill of its own.
type plotPart struct {
	Name  string
	Fill  string // reference of the pattern, or ""
	Class string
	Total float64
}

// plotMark is a column or a bar.
type plotMark struct {
	Label   string
	Value   float64
	Y       int // of a bar
	Pieces  []plotPiece
	Unknown bool // some cost is not known
}

// plotPiece is a rectangle. X and Width are in percent; Y and Height of columns are in pixels.
type plotPiece struct {
	X, Width  string
	Y, Height int
	Part      *plotPart
}

// plotLine is a line of the grid.
type plotLine struct {
	Y     int
	Value float64
}

type plotTick struct{ X, Anchor, Label string }

// Sizes of plots, in pixels.
const (
	columnsTop, columnsBase, columnsHeight = 18, 158, 182
	barStep, barOffset, barHeight          = 44, 20, 16
)

// Bounds of plots.
const (
	maxColumns = 366
	minColumns = 14 // as wide as that many are single columns
	maxBars    = 10
)

// measure is a measure of a row, in parts.
type measure struct {
	name, unit string
	parts      []string
	of         func(*store.UsageRow) []float64
}

// measures are those of the plots, in this order.
var measures = []measure{
	{"cost", "money", []string{"cost"}, func(r *store.UsageRow) []float64 { return []float64{r.CostUSD} }},
	{"tokens", "number", []string{"input", "output"}, func(r *store.UsageRow) []float64 {
		return []float64{float64(r.InputTokens), float64(r.OutputTokens)}
	}},
	{"requests", "number", []string{"requests"}, func(r *store.UsageRow) []float64 {
		return []float64{float64(r.Requests)}
	}},
	{"calls", "number", []string{"done", "failed", "refused"}, func(r *store.UsageRow) []float64 {
		return []float64{float64(r.Calls - r.Errors), float64(r.Errors - r.Refused), float64(r.Refused)}
	}},
	{"latency", "duration", []string{"latency"}, func(r *store.UsageRow) []float64 {
		return []float64{float64(meanMS(r))}
	}},
}

// fills tell parts apart without color.
var fills = []string{"", "url(#plot-lines)", "url(#plot-dots)"}

// plotsOf returns the plots of rows, without those that have no values.
func plotsOf(q usageAsked, rows []store.UsageRow) (all []plot) {
	columns := q.By == store.UsageByDay
	if columns {
		rows = everyDay(q, rows)
	}
	for _, m := range measures {
		pl := plot{Measure: m.name, Unit: m.unit, Columns: columns}
		for i, name := range m.parts {
			pl.Parts = append(pl.Parts, plotPart{Name: name, Fill: fills[i], Class: "plot-" + strconv.Itoa(i+1)})
		}
		values := pl.values(m, rows)
		most := 0.0
		for _, v := range values {
			most = max(most, v.sum)
		}
		if most == 0 {
			continue
		}
		if columns {
			pl.columns(values, most)
		} else {
			pl.bars(values)
		}
		all = append(all, pl)
	}
	return all
}

// plotValue is the value of a row in a plot.
type plotValue struct {
	label   string
	parts   []float64
	sum     float64
	unknown bool
}

func (p *plot) values(m measure, rows []store.UsageRow) []plotValue {
	all := make([]plotValue, len(rows))
	for i := range rows {
		v := plotValue{label: rows[i].Key, parts: m.of(&rows[i]), unknown: m.name == "cost" && rows[i].Unpriced}
		for k, n := range v.parts {
			v.sum += n
			p.Parts[k].Total += n
		}
		p.Unknown = p.Unknown || v.unknown
		all[i] = v
	}
	return all
}

// everyDay returns the rows with those of the days between, at most maxColumns.
func everyDay(q usageAsked, rows []store.UsageRow) []store.UsageRow {
	if len(rows) == 0 {
		return nil
	}
	known := map[string]store.UsageRow{}
	for _, r := range rows {
		known[r.Key] = r
	}
	first, last := q.UsageQuery.Since, q.UsageQuery.Until
	if first.IsZero() {
		first, _ = time.Parse(time.DateOnly, rows[0].Key) // the store made it
	}
	if last.IsZero() {
		last = time.Now().UTC()
	}
	if newest, _ := time.Parse(time.DateOnly, rows[len(rows)-1].Key); newest.After(last) {
		last = newest
	}
	end := store.DayOf(last)
	var all []store.UsageRow
	for day := max(store.DayOf(first), end-maxColumns+1); day <= end; day++ {
		r := known[day.String()]
		r.Key = day.String()
		all = append(all, r)
	}
	return all
}

// columns places the marks as columns.
func (p *plot) columns(values []plotValue, most float64) {
	p.Height, p.Base = columnsHeight, columnsBase
	step := niceStep(most)
	top := math.Ceil(most/step) * step
	scale := float64(columnsBase-columnsTop) / top
	for v := step; v <= top*1.001; v += step {
		p.Lines = append(p.Lines, plotLine{columnsBase - int(math.Round(v*scale)), v})
	}
	slots := float64(max(len(values), minColumns))
	for i, v := range values {
		mark := plotMark{Label: v.label, Value: v.sum, Unknown: v.unknown}
		sum := 0.0
		for k, n := range v.parts {
			y := columnsBase - int(math.Round((sum+n)*scale))
			height := columnsBase - int(math.Round(sum*scale)) - y
			if n > 0 && height == 0 {
				y, height = y-1, 1
			}
			if n > 0 {
				mark.Pieces = append(mark.Pieces, plotPiece{
					X: percent((float64(i) + .1) / slots), Width: percent(.8 / slots), Y: y, Height: height, Part: &p.Parts[k],
				})
			}
			sum += n
		}
		p.Marks = append(p.Marks, mark)
	}
	p.Ticks = []plotTick{{X: percent(0), Anchor: "start", Label: values[0].label}}
	if last := len(values) - 1; last > 0 {
		end, anchor := 1.0, "end"
		if len(values) < minColumns {
			end = float64(last+1) / slots
		}
		if end > .4 {
			p.Ticks = append(p.Ticks, plotTick{X: percent(end), Anchor: anchor, Label: values[last].label})
		}
	}
}

// bars places the marks as bars, the largest first, and sums up those from maxBars on.
func (p *plot) bars(values []plotValue) {
	values = slices.DeleteFunc(values, func(v plotValue) bool { return v.sum == 0 && !v.unknown })
	slices.SortStableFunc(values, func(a, b plotValue) int {
		switch {
		case a.sum > b.sum:
			return -1
		case a.sum < b.sum:
			return 1
		}
		return 0
	})
	if len(values) > maxBars+1 {
		if p.Others = len(values) - maxBars; p.Unit == "duration" { // means cannot be summed up
			values = values[:maxBars]
		} else {
			rest := plotValue{parts: make([]float64, len(p.Parts))}
			for _, v := range values[maxBars:] {
				for k, n := range v.parts {
					rest.parts[k] += n
				}
				rest.sum += v.sum
				rest.unknown = rest.unknown || v.unknown
			}
			values = append(values[:maxBars:maxBars], rest)
		}
	}
	most := 0.0
	for _, v := range values {
		most = max(most, v.sum)
	}
	for i, v := range values {
		mark := plotMark{Label: v.label, Value: v.sum, Y: i*barStep + barOffset - 6, Unknown: v.unknown}
		sum := 0.0
		for k, n := range v.parts {
			if n > 0 {
				mark.Pieces = append(mark.Pieces, plotPiece{
					X: percent(sum / most), Width: percent(n / most), Y: i*barStep + barOffset, Height: barHeight, Part: &p.Parts[k],
				})
			}
			sum += n
		}
		p.Marks = append(p.Marks, mark)
	}
	p.Height = len(values) * barStep
}

// niceStep returns a step of 1, 2 or 5 times a power of ten, of which two to five reach the value.
func niceStep(most float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(most)))
	for _, n := range []float64{.2, .5, 1, 2, 5} {
		if step := n * power; most/step <= 4 {
			return step
		}
	}
	return power * 5
}

func percent(part float64) string { return strconv.FormatFloat(part*100, 'f', 3, 64) + "%" }
