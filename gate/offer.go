package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// Offer is the set of tools that a request may show to the model: its record, and the specs in the
// same order, sorted by name. Both belong to the gate and must not be modified.
type Offer struct {
	Record journal.Offer
	Specs  []toolcrib.Spec

	of []*entry
}

// Set returns the names for [Facts.Offered], in a new map each time.
func (o Offer) Set() map[string]bool { return o.Record.Set() }

// Offer returns the offer of a run: every tool that no layer refuses, sorted by name. It can be
// empty. If the overrides cannot be read or ctx has ended, Offer returns an error and offers
// nothing. An offer larger than [Scope.FindAbove] contains a [toolcrib.Finder], and its record says
// which tools are shown from the start.
func (g *Gate) Offer(ctx context.Context, who toolcrib.Principal, scope Scope) (Offer, error) {
	if g == nil {
		g = &Gate{}
	}
	p, err := g.policyOf(ctx, &who, &scope)
	if err != nil {
		return Offer{}, fmt.Errorf("gate: no offer: %w", err)
	}
	return g.offerOf(p), nil
}

func (g *Gate) offerOf(p *policy) Offer {
	offered := make([]*entry, 0, len(p.tools.sorted))
	var finder *entry
	all, own := 0, 0 // bytes; own counts the tools that are not from elsewhere
	for _, e := range p.tools.sorted {
		if i, _ := g.firstOf(g.layers, p.query(e.spec.Name, e)); i < len(g.layers) {
			continue
		}
		if e.finder != nil {
			finder = e
			continue
		}
		offered = append(offered, e)
		if all += specBytes(&e.spec); !foreign(e.spec.Source) || e.byClient() {
			own += specBytes(&e.spec)
		}
	}
	if above := p.scope.FindAbove; finder != nil && above > 0 && all > above {
		o := makeOffer(offered, all)
		o.narrow(finder, own <= above)
		return o
	}
	// Most offers equal the one before.
	if last := g.offer.Load(); last != nil && slices.Equal(last.of, offered) {
		return *last
	}
	o := makeOffer(offered, all)
	g.offer.Store(&o)
	return o
}

func makeOffer(tools []*entry, size int) Offer {
	o := Offer{Record: journal.Offer{Tools: make([]journal.OfferedTool, len(tools)), Bytes: int64(size)}, of: tools}
	o.Specs = slices.Grow(o.Specs, len(tools))
	h := sha256.New()
	for i, e := range tools {
		o.Specs, o.Record.Tools[i] = append(o.Specs, e.spec), journal.OfferedTool{Name: e.spec.Name, Hash: e.hash}
		_, _ = h.Write(e.sum[:]) // the spec's hash covers the name
	}
	o.Record.Hash = hex.EncodeToString(h.Sum(nil))
	return o
}

// Explanation says why a tool is or is not offered to a run.
type Explanation struct {
	Tool        string          `json:"tool"`
	Registered  bool            `json:"registered"`
	Description string          `json:"description,omitempty"`
	Source      string          `json:"source,omitempty"`
	Group       string          `json:"group,omitempty"`
	Effect      toolcrib.Effect `json:"effect,omitempty"` // the worst effect of a call
	Offered     bool            `json:"offered"`
	Reason      toolcrib.Reason `json:"reason,omitempty"` // reason of the first layer that refuses
	Layers      []LayerAnswer   `json:"layers"`           // every layer's answer, in order
	Confirm     ConfirmAnswer   `json:"confirm"`
	// Rules are the rules that may apply to calls of the tool, in their order.
	Rules []RuleInfo `json:"rules,omitempty"`
	// Finder is the tool by which a model finds this one before it is shown. It is "" if this one
	// is shown anyway.
	Finder string `json:"finder,omitempty"`
	// Notes lists what else applies to calls of this tool in this run.
	Notes []string `json:"notes,omitempty"`
}

// ConfirmAnswer reports whether a person would be asked about a call with the tool's worst effect.
type ConfirmAnswer struct {
	Asks     bool   `json:"asks"`
	Why      string `json:"why,omitempty"`
	Position string `json:"position,omitempty"`
}

// Explain returns the answer of every layer for each named tool, in the order of the names. Without
// names it explains every registered tool, sorted. It asks the same layers with the same query as
// [Gate.Offer] and [Gate.Judge]. It never fails: if the overrides cannot be read, the answers say
// so, and nothing is offered.
func (g *Gate) Explain(ctx context.Context, who toolcrib.Principal, scope Scope, names ...string) []Explanation {
	if g == nil {
		g = &Gate{}
	}
	p, _ := g.policyOf(ctx, &who, &scope) // an error is in the answers
	unknown := g.unknownInLists(p)
	if len(names) == 0 {
		names = p.tools.names()
	}
	offer := g.offerOf(p).Record
	out := make([]Explanation, len(names))
	for i, name := range names {
		out[i] = g.explain(p, name, unknown)
		g.explainFinding(&out[i], p, &offer)
	}
	return out
}

func (g *Gate) explain(p *policy, name string, unknown map[toolcrib.Reason][]string) Explanation {
	e := p.tools.byName[name]
	x := Explanation{Tool: name, Layers: make([]LayerAnswer, 0, len(g.layers))}
	q := p.query(name, e)
	refused, no := g.firstRefusal(q)
	x.Offered = !no
	if no {
		x.Reason = refused.Layer
	}
	for i, l := range g.layers {
		_, answer := g.firstOf(g.layers[i:i+1], q)
		a := g.layerAnswer(q, reasonOf(l), answer)
		a.Unknown = unknown[a.Layer]
		x.Layers = append(x.Layers, a)
	}
	if e == nil {
		return x
	}
	x.Registered = true
	x.Description, x.Source, x.Group = e.spec.Description, e.spec.Source, e.spec.Group
	x.Effect = e.spec.Effect.OrStrictest()
	asked := g.question(e, x.Effect)
	x.Confirm = ConfirmAnswer{Asks: asked.asks, Why: asked.why(), Position: g.position(asked.key)}
	x.Notes = notes(e, p.scope, asked)
	if note := p.tools.untrustedNote(e); note != "" {
		x.Notes = append(x.Notes, note)
	}
	x.Rules = g.rulesAbout(name)
	return x
}

// rulesAbout returns the rules for calls of a tool. It returns none if the rules panic; every call
// is then refused.
func (g *Gate) rulesAbout(name string) []RuleInfo {
	if g.options.Rules == nil {
		return nil
	}
	rules, _ := guard.Contain(func() ([]RuleInfo, error) { return g.options.Rules.About(name), nil })
	return rules
}

// notes lists the answers of the steps after the layers, as far as they are known without
// arguments.
func notes(e *entry, s *Scope, asked question) []string {
	var notes []string
	writes := e.spec.Effect.Writes()
	if e.spec.Plans.Effect {
		notes = append(notes, "the effect of a call depends on its arguments")
	}
	if s.ReadOnly && writes {
		notes = append(notes, "calls that write are refused: the run may only read (read_only_mode)")
	}
	if s.Unattended && asked.asks {
		notes = append(notes, "calls that need an approval are refused: this run cannot ask anybody (needs_confirmation)")
	}
	if note := taintNote(e, s); note != "" {
		notes = append(notes, note)
	}
	if e.tooDeep(s) {
		notes = append(notes, "calls are refused: too deep (depth_exceeded)")
	}
	if e.spec.Plans.Policy {
		notes = append(notes, "the tool has a policy of its own (tool_policy)")
	}
	if e.spec.Plans.Concerns {
		notes = append(notes, "the tool asks about some calls itself (needs_confirmation)")
	}
	if note := UncheckedText(e.unchecked); note != "" {
		notes = append(notes, note)
	}
	return append(notes, workerNotes(s)...)
}

// unknownInLists returns, by layer, the entries of its list that match no tool.
func (g *Gate) unknownInLists(p *policy) map[toolcrib.Reason][]string {
	out, tools := make(map[toolcrib.Reason][]string), p.tools.sorted
	for _, l := range g.layers {
		own, _ := l.(layer)
		if own.list == nil {
			continue
		}
		for _, p := range own.list(p.scope) {
			if pattern, _ := own.kind.pattern(p); !meansOne(pattern, tools) {
				out[own.reason] = append(out[own.reason], p)
			}
		}
	}
	return out
}

// UnknownNames returns the names and patterns of a list that match no registered tool. They are
// dropped with a notice.
func (g *Gate) UnknownNames(list []string) []string {
	tools := g.toolSet()
	return slices.DeleteFunc(slices.Clone(list), func(p string) bool { return meansOne(p, tools.sorted) })
}
