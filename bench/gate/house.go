package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/gate/celrule"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// The size of the house.
const (
	tools     = 1000
	groups    = 40
	overrides = 500
	grants    = 200
	called    = 707 // the tool that is called
)

// reads counts who was asked.
type reads struct{ availability, people int }

type tool struct{ spec toolcrib.Spec }

func (t *tool) Spec() toolcrib.Spec { return t.spec }

func (t *tool) Call(context.Context, toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.Output{}, nil
}

const parameters = `{"type":"object","properties":{"path":{"type":"string","maxLength":400},"n":{"type":"integer","minimum":0},` +
	`"tags":{"type":"array","items":{"type":"string"}},"force":{"type":"boolean"}},"required":["path","n"]}`

const arguments = `{"force":false,"n":3,"path":"notes/2026/plan.md","tags":["a","b"]}`

func nameOf(i int) string  { return fmt.Sprintf("server%02d__tool_%03d", i%groups, i) }
func groupOf(i int) string { return fmt.Sprintf("server%02d", i%groups) }

func allTools() []toolcrib.Tool {
	list := make([]toolcrib.Tool, tools)
	for i := range list {
		effect := toolcrib.EffectReadOnly
		if i%2 == 1 {
			effect = toolcrib.EffectIdempotentWrite
		}
		list[i] = &tool{toolcrib.Spec{
			Name: nameOf(i), Group: groupOf(i), Description: "Tool " + nameOf(i), Source: "go", Effect: effect,
			EnabledByDefault: true, Parameters: json.RawMessage(parameters), RequiresAdmin: i%50 == 49,
		}}
	}
	return list
}

// switches returns overrides: every second tool is switched on by name, some tools and a group are
// off.
func switches() gate.Overrides {
	o := gate.Overrides{Tools: map[string]bool{}, Groups: map[string]bool{groupOf(3): false, groupOf(4): true}}
	for i := 0; len(o.Tools) < overrides-2; i += 2 {
		o.Tools[nameOf(i+1)] = i%20 != 0 || i+1 == called
	}
	return o
}

type counted struct {
	gate.Availability
	reads *reads
}

func (c counted) Overrides(ctx context.Context) (gate.Overrides, error) {
	c.reads.availability++
	return c.Availability.Overrides(ctx)
}

// person is a user of the directory with many grants, who acts by a token.
type person struct {
	standing gate.Standing
	reads    *reads
}

func (p *person) Standing(context.Context, toolcrib.Principal) (gate.Standing, error) {
	p.reads.people++
	return p.standing, nil
}

func principal() toolcrib.Principal {
	p := toolcrib.Principal{User: "ann", Groups: []string{"dev"}, Token: "tok_1"}
	for i := range grants - 21 {
		p.Grants = append(p.Grants, nameOf(i))
	}
	for i := range 10 {
		p.Grants = append(p.Grants, fmt.Sprintf("server%02d__*", i), groupOf(10+i))
	}
	p.Grants = append(p.Grants, nameOf(called)) // the last one
	return p
}

// token covers what its lists have.
type token struct{ tools map[string]bool }

var errNotCovered = errors.New("not covered")

func (t *token) Agent(string) error { return nil }

func (t *token) Offers(_, tool string) error {
	if !t.tools[tool] {
		return errNotCovered
	}
	return nil
}

func (t *token) Covers(agent, tool string, _ json.RawMessage) error { return t.Offers(agent, tool) }
func (t *token) Room(context.Context) error                         { return nil }
func (t *token) Take(context.Context) error                         { return nil }

func scope() gate.Scope {
	return gate.Scope{
		Agent: "default", MaxDepth: 3, MaxCalls: 64, MaxRepeats: 3, HasSkills: true,
		AgentTools:  []string{"read_*", "server0*", "server1*", "server2*", "server3*", "write_*"},
		SkillTools:  []string{"server*__tool_*", "exec_shell(git:*)", nameOf(1)},
		RunTools:    []string{nameOf(2), nameOf(3), "*__tool_*"},
		WorkerTools: []string{"*tool*"},
	}
}

func facts() gate.Facts {
	f := gate.Facts{
		Run: "run_1", Session: "ses_1", Offered: map[string]bool{},
		Repeated: func(string, []byte) int { return 0 },
	}
	for i := range tools {
		f.Offered[nameOf(i)] = true
	}
	for i := range 50 {
		f.Remembered = append(f.Remembered, journal.Remembered{
			Tool: nameOf(i), Source: "go", Scope: "user", ApprovalID: "apr_1",
		})
	}
	f.Remembered = append(f.Remembered, journal.Remembered{
		Tool: nameOf(called), Source: "go", Scope: "user", ApprovalID: "apr_2",
	})
	return f
}

// fifty are fifty rules of the kinds that people write; about says how many of them
// are about the tool that is called, besides those about every tool.
func fifty(about int) []celrule.Rule {
	kinds := []celrule.Rule{
		{When: `args.path.startsWith("secret/")`, Then: gate.RuleDeny},
		{When: `args.path.endsWith(".key") || args.path.contains("/.ssh/")`, Then: gate.RuleDeny},
		{When: `args.n > 1000`, Then: gate.RuleAsk},
		{When: `has(args.force) && args.force`, Then: gate.RuleAsk},
		{When: `args.path.matches("(?i)password|token") && effect != "read_only"`, Then: gate.RuleDeny},
		{When: `"prod" in args.tags`, Then: gate.RuleAsk},
		{When: `args.tags.exists(t, t.startsWith("release-"))`, Then: gate.RuleAsk},
		{When: `user in ["mallory", "trudy"]`, Then: gate.RuleDeny},
		{When: `tainted && effect != "read_only"`, Then: gate.RuleAsk},
		{When: `depth > 2 || "guests" in groups`, Then: gate.RuleDeny},
	}
	rules := make([]celrule.Rule, 50)
	for i := range rules {
		rules[i] = kinds[i%len(kinds)]
		rules[i].Name = fmt.Sprint("rule", i)
		switch {
		case i < about:
			rules[i].Tools = []string{nameOf(called), "write_*"}
		case i%10 == 8: // about every tool
		default:
			rules[i].Tools = []string{nameOf(i), fmt.Sprintf("server%02d__tool_9*", i%groups)}
		}
	}
	return rules
}

// newWorks makes all that is measured.
func newWorks(ctx context.Context, dir string) ([]work, func(), error) {
	db, err := sqlite.Open(ctx, filepath.Join(dir, "toolcrib.db"), sqlite.Options{})
	if err != nil {
		return nil, nil, err
	}
	closeIt := func() { _ = db.Close() }
	for name, on := range switches().Tools {
		if _, err := db.SetOverride(ctx, store.Override{
			Kind: store.OverrideTool, Name: name, Enabled: on,
			By: "root",
		}); err != nil {
			closeIt()
			return nil, nil, err
		}
	}
	var works []work
	for _, h := range []struct {
		name   string
		target int // µs
		rules  []celrule.Rule
		stored bool
	}{
		{"decision, no rules", 5, nil, false},
		{"decision, 50 rules, 10 about the tool", 25, fifty(10), false},
		{"decision, 50 rules, all about the tool", 0, fifty(50), false},
		{"decision, no rules, SQLite behind it", 5, nil, true},
	} {
		house, err := newHouse(h.rules, h.stored, db)
		if err != nil {
			closeIt()
			return nil, nil, err
		}
		works = append(works, house.decision(h.name, h.target))
		if h.rules == nil {
			works = append(works, house.offer(strings.Replace(h.name, "decision", "offer", 1)))
		}
	}
	return works, closeIt, nil
}

type house struct {
	gate  *gate.Gate
	reads *reads
	who   toolcrib.Principal
}

func newHouse(rules []celrule.Rule, stored bool, db store.Store) (*house, error) {
	h := &house{reads: &reads{}, who: principal()}
	covered := map[string]bool{}
	for i := range tools {
		covered[nameOf(i)] = true
	}
	o := gate.Options{
		Tools: allTools(), Availability: counted{switches(), h.reads},
		People: &person{gate.Standing{Principal: h.who, Token: &token{covered}}, h.reads},
	}
	if stored {
		o.Availability = counted{&fromStore{store: db}, h.reads}
	}
	if rules != nil {
		set, err := celrule.New(rules, celrule.Options{})
		if err != nil {
			return nil, err
		}
		o.Rules = set
	}
	var err error
	h.gate, err = gate.New(o)
	return h, err
}

func (h *house) decision(name string, target int) work {
	s, f := scope(), facts()
	turn := []toolcrib.ToolCall{{ID: "call_1", Name: nameOf(called), Arguments: json.RawMessage(arguments)}}
	return work{name, micro(target), func(ctx context.Context) error {
		v := h.gate.Judge(ctx, h.who, s, f, turn)[0]
		if v.Refused() || v.Decision != toolcrib.Allow {
			return fmt.Errorf("%q %s: %s (%s)", v.Decision, v.Reason, v.Message, v.Detail)
		}
		return nil
	}, h.reads}
}

func (h *house) offer(name string) work {
	s := scope()
	return work{name, micro(500), func(ctx context.Context) error {
		o, err := h.gate.Offer(ctx, h.who, s)
		if err == nil && len(o.Specs) < 100 {
			err = fmt.Errorf("%d tools are offered", len(o.Specs))
		}
		return err
	}, h.reads}
}
