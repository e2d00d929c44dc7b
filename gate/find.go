package gate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// If an offer is too large to be shown to a model whole, the model is given a tool that finds the
// others ([toolcrib.Finder]). The tools that it finds are shown. The offer itself does not change,
// and bounds the calls that the run may make.

// specBytes returns the approximate size of a spec as it is shown to a model.
func specBytes(s *toolcrib.Spec) int {
	return len(s.Name) + len(s.Description) + len(s.Parameters) + 40
}

// narrow adds the finder to an offer that is too large to be shown whole. From the start a model is
// shown the finder and, if own is set, the tools that are not from elsewhere.
func (o *Offer) narrow(finder *entry, own bool) {
	var groups []string // groups of the tools that are not shown
	for i := range o.Specs {
		t, s := &o.Record.Tools[i], &o.Specs[i]
		t.Bytes, t.Shown = specBytes(s), own && (!foreign(s.Source) || s.AnsweredBy == toolcrib.ByClient)
		if group := cmp.Or(s.Group, s.Source); !t.Shown && (len(groups) == 0 || groups[len(groups)-1] != group) {
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	spec := finder.spec
	_ = contain(func() error { // if this panics, the finder's own description stays
		spec.Description = guard.Clean(finder.finder.About(slices.Compact(groups)))
		return nil
	})
	sum := sha256.Sum256(encode(spec))
	tool := journal.OfferedTool{Name: spec.Name, Hash: hex.EncodeToString(sum[:]), Bytes: specBytes(&spec), Shown: true}
	at, _ := o.Record.Find(spec.Name)
	o.Specs = slices.Insert(o.Specs, at, spec)
	o.Record.Tools = slices.Insert(o.Record.Tools, at, tool)
	o.Record.Finder, o.Record.Bytes = spec.Name, o.Record.Bytes+int64(tool.Bytes)
	all := make([]int, len(o.Record.Tools))
	for i := range all {
		all[i] = i
	}
	o.Record.Hash = o.Record.HashOf(all)
}

// offeredSpecs returns a function that lists the specs of the run's offer for a call of the finder.
func offeredSpecs(tools *toolSet, offered map[string]bool) func() []toolcrib.Spec {
	return func() (specs []toolcrib.Spec) {
		for _, e := range tools.sorted {
			if offered[e.spec.Name] && e.finder == nil {
				specs = append(specs, e.spec)
			}
		}
		return specs
	}
}

// explainFinding adds to an explanation how the size of the offer affects the tool.
func (g *Gate) explainFinding(x *Explanation, p *policy, offer *journal.Offer) {
	e := p.tools.byName[x.Tool]
	switch {
	case e == nil || !x.Offered || p.scope.FindAbove <= 0 && e.finder == nil:
	case e.finder != nil:
		a := LayerAnswer{
			Layer: toolcrib.ReasonNotOffered, Allowed: offer.Finder != "",
			Detail: fmt.Sprintf("the tools of the offer have %d bytes; above %d a model finds them by this one",
				offer.Bytes, p.scope.FindAbove),
			Position: g.scopePosition(p.scope, "agents.AGENT.find_tools.above_bytes"),
		}
		if p.scope.FindAbove <= 0 {
			a.Detail = "a model is shown every tool of the offer"
		}
		if x.Layers = append(x.Layers, a); !a.Allowed {
			x.Offered, x.Reason = false, a.Layer
		}
	case offer.Finder != "":
		if i, ok := offer.Find(x.Tool); ok && !offer.Tools[i].Shown {
			x.Finder = offer.Finder
		}
	}
}
