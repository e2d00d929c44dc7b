package policy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/mcpset"
	"github.com/toolcrib/toolcrib/store"
)

// ExplainRequest asks why tools are offered or not, to a run that could begin now or to a stored one.
type ExplainRequest struct {
	Tool    string             // if "", all
	Given   *toolcrib.ToolCall // is judged as well; may be nil
	Tainted []string           // untrusted data that the run would have read before the given call
	Run     string             // a stored run, by its ID or a part of it; if "", the run that the rest describes

	Agent     string // if "", the default agent
	Admin     bool   // the run would act with the administrator's rights of a local user
	Change    Change
	Workspace string // if "", the configured one
	Approve   agent.Approve
	Tools     []string          // what the run may use of the agent's tools; nil does not restrict them
	Notice    func(text string) // receives messages for a person; if nil, [env.Env.Notice] does
}

// Explained has the answer of each layer for each tool, and the verdict on the given call.
type Explained struct {
	Tools []gate.Explanation `json:"tools"`
	Call  *JudgedCall        `json:"call,omitempty" jsonschema:"the verdict on the call"` // nil without a given call
	// Notices say which MCP servers are missing and which have tools that were left out.
	Notices []toolcrib.Notice `json:"notices,omitempty" jsonschema:"what is missing of MCP servers"`
}

// JudgedCall is a call as it would be judged now.
type JudgedCall struct {
	Arguments json.RawMessage `json:"arguments"`
	Taint     []string        `json:"taint,omitempty"`
	Verdict   journal.Verdict `json:"verdict"`
	Programs  []Program       `json:"programs,omitempty"`
	// Content is what a model would read if the call is refused.
	Content json.RawMessage `json:"content,omitempty"`
}

// Program is a program that a call starts. Words that are not known before the call are null.
type Program struct {
	Name *string   `json:"name"`
	Args []*string `json:"args"`
}

// explaining is the run that is explained.
type explaining struct {
	gate  *gate.Gate
	who   toolcrib.Principal
	scope gate.Scope
	facts gate.Facts             // of a stored run, at the end of its journal
	found func(tool string) bool // of a stored run; nil for another one
	run   toolcrib.RunID

	arguments string // [toolcrib.Agent.Arguments]
}

// Explain returns the answer of every layer of the gate, from the code that decides when a call is made. If a call is
// given, it judges that call. It runs nothing and stores nothing.
func (p *Policy) Explain(ctx context.Context, who toolcrib.Principal, q ExplainRequest) (Explained, error) {
	x, err := p.explaining(ctx, who, &q)
	if err != nil {
		return Explained{}, err
	}
	var names []string
	if q.Tool != "" {
		names = append(names, q.Tool)
	}
	out := Explained{Tools: x.gate.Explain(ctx, x.who, x.scope, names...)}
	if x.facts.Remembered, err = p.remembered(ctx, x); err != nil {
		return out, err
	}
	shown, err := p.rememberedSeen(ctx, who, x)
	if err != nil {
		return out, err
	}
	p.note(x, shown, out.Tools)
	out.Notices = p.noteMCP(ctx, who, x, out.Tools)
	if q.Given != nil {
		x.noteConverted(q.Given, out.Tools)
		out.Call, err = p.judged(ctx, x, &q)
	}
	if out.Call != nil && !env.ReadsConfig(who) && !p.env.ReadsDetails(who) {
		out.Call.Verdict = out.Call.Verdict.Public()
	}
	if !env.ReadsConfig(who) {
		out.withoutConfig(p.spawnFor(ctx, who))
	}
	return out, err
}

// noteConverted notes how the arguments of the call would be converted if a model sent them.
func (x *explaining) noteConverted(given *toolcrib.ToolCall, answers []gate.Explanation) {
	if x.arguments == agent.ArgumentsStrict {
		return
	}
	sent := cmp.Or(given.Broken, string(given.Arguments))
	read := x.gate.Read(x.scope, given.Name, []byte(sent), true)
	for i := range answers {
		if a := &answers[i]; len(read.Converted) > 0 && a.Tool == given.Name {
			a.Notes = append(a.Notes, fmt.Sprintf("sent by a model, these arguments are converted to %s: %s", read.Canonical,
				strings.Join(read.Converted, "; ")))
		}
	}
}

// rememberedSeen returns the remembered approvals that who may see. An access token may see those of the runs that it
// started.
func (p *Policy) rememberedSeen(
	ctx context.Context, who toolcrib.Principal, x *explaining,
) ([]journal.Remembered, error) {
	if who.Token == "" {
		return x.facts.Remembered, nil
	}
	list, err := p.Remembered(ctx, who, false, store.MaxLimit)
	return slices.DeleteFunc(slices.Clone(x.facts.Remembered), func(m journal.Remembered) bool {
		return !slices.ContainsFunc(list, func(k store.Remembered) bool { return k.ApprovalID == m.ApprovalID })
	}), err
}

// withoutConfig removes what only administrators may read: positions in the configuration, and agents that others may
// not use. spawn is the tool as who may read it.
func (x *Explained) withoutConfig(spawn toolcrib.Spec) {
	for i := range x.Tools {
		t := &x.Tools[i]
		if t.Tool == spawn.Name && t.Registered {
			t.Description = spawn.Description
		}
		for j := range t.Layers {
			t.Layers[j].Position = ""
		}
		t.Confirm.Position = ""
		for j := range t.Rules {
			t.Rules[j].Position = ""
		}
	}
}

func (p *Policy) explaining(ctx context.Context, who toolcrib.Principal, q *ExplainRequest) (*explaining, error) {
	if q.Run != "" {
		rec, err := p.env.Find(ctx, who, q.Run)
		if err != nil {
			return nil, err
		}
		return p.explainingStored(ctx, rec)
	}
	def, err := p.Agent(q.Agent, q.Change)
	if err == nil && !env.ReadsConfig(who) {
		var refused string
		if refused, err = p.MayRun(ctx, who, def.Name); err == nil && refused != "" {
			err = toolcrib.Errorf(toolcrib.CodeForbidden, "%s", refused)
		}
	}
	if err != nil {
		return nil, err
	}
	g, workspace, err := p.lookingGate(q.Workspace, nil)
	if err != nil {
		return nil, err
	}
	tell := q.Notice
	if tell == nil {
		tell = p.env.Notice
	}
	scope, err := p.Scope(&def, workspace, q.Approve, q.Tools, tell)
	return &explaining{gate: g, who: RunsAs(who, q.Admin), scope: scope, arguments: def.Arguments}, err
}

// lookingGate returns a gate for explanations. The configured workspace may be missing, because it does not decide
// which tools exist; a run reports that. start is the first event of the run that is explained, or nil for one that
// could begin.
func (p *Policy) lookingGate(workspace string, start *journal.RunStarted) (*gate.Gate, string, error) {
	dir, err := p.Workspace(workspace, nil)
	if err != nil && workspace != "" {
		return nil, "", err
	}
	if err != nil {
		dir = "/"
	}
	g, err := p.GateFor(dir, start)
	if err == nil && !ofTeam(start) {
		g, err = g.With(p.absent())
	}
	return g, dir, err
}

// explainingStored returns a stored run at its end, under the current policy.
func (p *Policy) explainingStored(ctx context.Context, rec store.RunRecord) (*explaining, error) {
	state, err := agent.Load(ctx, p.env.Store, rec.ID)
	if errors.Is(err, store.ErrPruned) {
		return nil, fmt.Errorf("run %s: its content was pruned, so its calls cannot be explained", rec.ID)
	}
	if err != nil {
		return nil, err
	}
	x := &explaining{
		who: state.Start.Principal, scope: agent.Scope(state), facts: agent.Facts(state), run: rec.ID, found: state.Found,
		arguments: state.Start.Agent.Arguments,
	}
	if x.gate, _, err = p.lookingGate(x.scope.Workspace, state.Start); err != nil {
		return nil, err
	}
	return x, nil
}

// remembered returns the approvals that apply to a run: its own, and those of its user and its session in its
// workspace.
func (p *Policy) remembered(ctx context.Context, x *explaining) ([]journal.Remembered, error) {
	own := x.facts.Remembered
	if len(own) > 0 {
		revoked, err := Memory{p.env.Store}.Forgotten(ctx, x.run)
		if err != nil {
			return nil, err
		}
		own = core.Holding(own, revoked)
	}
	kept, err := Memory{p.env.Store}.Remembered(ctx, x.who.User, x.facts.Session)
	kept = slices.DeleteFunc(kept, func(m journal.Remembered) bool { return !gate.ValidIn(x.scope.Workspace, &m) })
	if kept = append(slices.Clip(own), kept...); p.env.Config.Approvals.FourEyes {
		kept = agent.OfOthers(x.who.User, kept)
	}
	return kept, err
}

// note adds notes about what a stored run has read, and about remembered approvals for the tools.
func (p *Policy) note(x *explaining, remembered []journal.Remembered, answers []gate.Explanation) {
	settings := ToolSettings(p.env.Config)
	for i := range answers {
		a := &answers[i]
		if taint := x.facts.Taint; x.run != "" && len(taint) > 0 {
			a.Notes = append(a.Notes, fmt.Sprintf("run %s has read untrusted data: %s", x.run, strings.Join(taint, ", ")))
		}
		switch {
		case a.Finder == "":
		case x.found != nil && x.found(a.Tool):
			a.Notes = append(a.Notes, fmt.Sprintf("run %s has found it by %s, or has called it", x.run, a.Finder))
		default:
			a.Notes = append(a.Notes, "a model is shown it once it has found it by "+a.Finder+", or has called it")
		}
		for _, m := range remembered {
			writesFiles := a.Source == "builtin" && a.Group == toolcrib.GroupFiles && a.Effect.Writes()
			if m.Tool != a.Tool && !(m.AnyWriter() && writesFiles) {
				continue
			}
			what := "it needs no approval by tools.confirm"
			if settings[a.Tool].Confirm == gate.ConfirmAlways {
				what = "it is asked about anyway, because tools.settings." + a.Tool + ".confirm is always"
			}
			a.Notes = append(a.Notes, fmt.Sprintf(
				"remembered for the %s: %s: %s; approved by %s (%s)", m.Scope, rememberedText(m), what, m.By, m.ApprovalID))
		}
	}
}

// noteMCP adds notes about missing MCP servers and tools, and returns them. For servers that were started it reports
// their present state, for others what the explained run, or else the last one, reported. It starts no server.
func (p *Policy) noteMCP(
	ctx context.Context, who toolcrib.Principal, x *explaining, answers []gate.Explanation,
) (notices []toolcrib.Notice) {
	lacking, untried := p.mcp.Lacking(x.gate)
	if x.run != "" || untried {
		notices = p.metMCP(ctx, who, x.run)
	}
	if x.run != "" {
		lacking = nil
	}
	for _, l := range lacking {
		notices = slices.DeleteFunc(notices, func(n toolcrib.Notice) bool { return n.Tool == l.Tools })
		for _, n := range l.Notices {
			if !p.env.ReadsDetails(who) {
				n.Message = n.Public
			}
			n.Public = ""
			notices = append(notices, n)
		}
	}
	for i := range answers {
		for _, n := range notices {
			if ok, _ := path.Match(n.Tool, answers[i].Tool); ok {
				answers[i].Notes = append(answers[i].Notes, n.Message)
			}
		}
	}
	return notices
}

// metMCP returns what a run, or else the last one, reported about MCP servers.
func (p *Policy) metMCP(ctx context.Context, who toolcrib.Principal, run toolcrib.RunID) (notices []toolcrib.Notice) {
	rec, err := p.env.Find(ctx, who, cmp.Or(string(run), "last"))
	if err != nil {
		return nil // there is no run
	}
	for e, err := range p.env.ReadRun(ctx, who, rec.ID, 0) {
		if err != nil {
			break // this only adds to what is explained
		}
		b, ok := e.Body.(*journal.Notice)
		if !ok || b.Code != mcpset.NoticeServerMissing && b.Code != mcpset.NoticeToolsMissing {
			continue
		}
		n := b.Notice
		n.Public, n.RunID, n.Message = "", rec.ID, fmt.Sprintf("in run %s: %s", rec.ID, n.Message)
		if !slices.ContainsFunc(notices, func(o toolcrib.Notice) bool { return o.Message == n.Message }) {
			notices = append(notices, n)
		}
	}
	return notices
}

// judged judges the given call as the next one of a stored run, or as the first of a new one.
func (p *Policy) judged(ctx context.Context, x *explaining, q *ExplainRequest) (*JudgedCall, error) {
	offer, err := x.gate.Offer(ctx, x.who, x.scope)
	if err != nil {
		return nil, err
	}
	facts := x.facts
	facts.Offered, facts.DryRun, facts.Mask = offer.Set(), true, p.env.Mask.Mask
	for _, source := range q.Tainted {
		if !slices.Contains(facts.Taint, source) {
			facts.Taint = append(facts.Taint, source)
		}
	}
	v := x.gate.Judge(ctx, x.who, x.scope, facts, []toolcrib.ToolCall{*q.Given})[0]
	agent.MaskVerdict(p.env.Mask, &v)
	judged := &JudgedCall{
		Arguments: journal.ViewCall(q.Given).Arguments, Taint: facts.Taint, Verdict: v.Verdict,
		Programs: programsOf(v.Programs),
	}
	if v.Refused() {
		judged.Content = json.RawMessage(v.Content)
		judged.Verdict.Decision = decisionRefuse // the journal leaves a refusal empty
	}
	return judged, nil
}

// JudgeFor judges a call as the next one of a stored run.
func (p *Policy) JudgeFor(ctx context.Context, rec store.RunRecord, given *toolcrib.ToolCall) (*JudgedCall, error) {
	x, err := p.explainingStored(ctx, rec)
	if err != nil {
		return nil, err
	}
	return p.judged(ctx, x, &ExplainRequest{Given: given})
}

// decisionRefuse is the decision of a verdict that neither allows nor asks.
const decisionRefuse = "refuse"

func programsOf(programs []toolcrib.Program) []Program {
	var views []Program
	word := func(w toolcrib.Word) *string {
		if w.Unknown {
			return nil
		}
		return &w.Text
	}
	for _, p := range programs {
		v := Program{Name: word(p.Name), Args: make([]*string, len(p.Args))}
		for i, w := range p.Args {
			v.Args[i] = word(w)
		}
		views = append(views, v)
	}
	return views
}

// GivenCall returns a call without a model. Its arguments are read strictly, once.
func (p *Policy) GivenCall(name string, raw []byte) *toolcrib.ToolCall {
	p.env.LearnSecrets() // arguments must not have them
	return NewCall(p.env.Mask, name, raw)
}

// NewCall is [Policy.GivenCall] for the secrets that mask knows.
func NewCall(mask *guard.Masker, name string, raw []byte) *toolcrib.ToolCall {
	call := &toolcrib.ToolCall{ID: "call_1", Name: name}
	if !toolcrib.ValidToolName(name) {
		call.Name, call.ProviderName = toolcrib.InvalidName, strings.ToValidUTF8(name, "\uFFFD")
	}
	agent.ReadArguments(call, mask, raw)
	return call
}

// rememberedText describes the calls that a remembered approval covers.
func rememberedText(m journal.Remembered) string {
	whole := func(text string, _ int) string { return PathText(text) }
	return propose.Covers(m, whole, func(arguments json.RawMessage, most int) string {
		return guard.Visible(strings.ToValidUTF8(string(arguments[:min(len(arguments), most)]), "…"))
	})
}
