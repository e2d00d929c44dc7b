package gate

import (
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
)

// Layer is one of the questions that decide whether a run may have a tool at all, independently of
// the arguments. A layer can only take away. It must be pure and safe for concurrent use: the same
// query has the same answer, and nothing is changed or kept. gatetest.RunLayer is the suite for it.
type Layer interface {
	// Reason is the reason that refusals by this layer are reported with.
	Reason() toolcrib.Reason
	Judge(q *Query) Answer
}

// Query asks a layer whether a run may have a tool. The zero value has neither a tool nor a
// principal, and every layer refuses it.
type Query struct {
	Name string         // as asked for
	Spec *toolcrib.Spec // nil if there is no such tool
	// Unusable says why a registered tool cannot be used, or is "" if it can.
	Unusable string
	Who      *toolcrib.Principal // nil if the call has no user
	Token    Token               // token by which Who acts, or nil
	Refused  string              // why Who may do nothing at all, or ""
	Scope    *Scope              // if nil, nothing is allowed
	// Overrides is nil if they could not be read; Unknown then says why.
	Overrides *Overrides
	Unknown   string

	finder bool        // the tool finds others, but only those of the offer
	ready  *readyLists // the long lists of Who and Scope
}

// Answer is a layer's answer. The zero value refuses.
type Answer struct {
	Allowed bool
	// Detail says why, for operators and explain; never for a model.
	Detail string
	// By is the name, pattern or grant that decided, if one did.
	By string
	// Key is the key path of the configuration that decided, if one did. AGENT in it means the name
	// of the run's agent.
	Key string
	// Hint says how an operator can change it. The model reads it as well.
	Hint string
}

func allowed(detail string) Answer { return Answer{Allowed: true, Detail: detail} }

// LayerAnswer is one layer's answer as explain shows it.
type LayerAnswer struct {
	Layer    toolcrib.Reason `json:"layer"`
	Allowed  bool            `json:"allowed"`
	Detail   string          `json:"detail,omitempty"`
	Position string          `json:"position,omitempty"` // FILE:LINE of the configuration
	// Unknown has the names and patterns of the layer's list that match no tool.
	Unknown []string `json:"unknown,omitempty"`

	hint string
}

// reasonOf returns the reason of a layer's refusals. It is never "".
func reasonOf(l Layer) toolcrib.Reason {
	reason, err := guard.Contain(func() (toolcrib.Reason, error) { return l.Reason(), nil })
	if err != nil || reason == "" {
		return toolcrib.ReasonNotPermitted
	}
	return reason
}

// firstOf asks the layers in order until one refuses, and returns its index and answer. If none
// refuses, i is len(layers). A panic refuses. Offers, decisions and explanations ask layers only
// through firstOf.
func (g *Gate) firstOf(layers []Layer, q *Query) (i int, a Answer) {
	last, err := contained(g, func() (last Answer, err error) {
		for ; i < len(layers); i++ {
			if last = layers[i].Judge(q); !last.Allowed {
				break
			}
		}
		return last, nil
	})
	if a = last; err != nil {
		a = Answer{Detail: err.Error()}
	}
	return i, a
}

// firstRefusal returns the answer of the first layer that refuses, and reports whether one did.
func (g *Gate) firstRefusal(q *Query) (LayerAnswer, bool) {
	if len(g.layers) == 0 {
		return LayerAnswer{Layer: toolcrib.ReasonNotRegistered, Detail: "the gate has no tools"}, true
	}
	i, a := g.firstOf(g.layers, q)
	if i == len(g.layers) {
		return LayerAnswer{}, false
	}
	return g.layerAnswer(q, reasonOf(g.layers[i]), a), true
}

func (g *Gate) layerAnswer(q *Query, reason toolcrib.Reason, a Answer) LayerAnswer {
	if a.By != "" {
		a.Detail += ": " + a.By
	}
	return LayerAnswer{
		Layer: reason, Allowed: a.Allowed, Detail: guard.Cut(a.Detail, maxDetailBytes),
		Position: g.scopePosition(q.Scope, a.Key), hint: a.Hint,
	}
}

// policy is the policy of one offer, turn or explanation. It is used by one goroutine.
type policy struct {
	gate  *Gate // nil if it judges nothing
	tools *toolSet
	who   *toolcrib.Principal
	scope *Scope
	here  *whereabouts // nil until it is looked up
	asked Query

	// The values that the pointers refer to, in one allocation.
	ownWho   toolcrib.Principal
	ownScope Scope
	ownOver  Overrides
	ownReady readyLists
}

// of copies its arguments into p, which must be empty.
func (p *policy) of(tools *toolSet, who *Standing, scope *Scope, over Overrides, err error) *policy {
	p.tools = tools
	if who != nil {
		p.ownWho = who.Principal
		p.who, p.asked.Token, p.asked.Refused = &p.ownWho, who.Token, who.Refused
	}
	if scope != nil {
		p.ownScope = *scope
		p.scope = &p.ownScope
	}
	if err != nil {
		p.asked.Unknown = err.Error()
	} else {
		p.ownOver = over
		p.asked.Overrides = &p.ownOver
	}
	p.asked.Who, p.asked.Scope, p.asked.ready = p.who, p.scope, &p.ownReady
	return p
}

// query returns the question to the layers about a tool. It is valid until the next call of query.
func (p *policy) query(name string, e *entry) *Query {
	q := &p.asked
	q.Name, q.Spec, q.Unusable, q.finder = name, nil, "", false
	if e != nil {
		q.Spec, q.Unusable, q.finder = &e.spec, e.unusable, e.finder != nil
	}
	return q
}
