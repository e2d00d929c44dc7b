package gate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// Rules judge calls by their arguments. Package [celrule] implements them in CEL.
//
// Judge returns every rule that applies to the call, in their order. It must not panic, must be
// bounded in time and memory, and is called by many goroutines. It must not keep or change any part
// of in.
//
// [celrule]: https://pkg.go.dev/github.com/toolcrib/toolcrib/gate/celrule
type Rules interface {
	Judge(ctx context.Context, in RuleInput) []RuleMatch
	// About returns the rules that may apply to calls of a tool, in their order,
	// for explain.
	About(tool string) []RuleInfo
}

// RuleInput has the facts about a call that a rule can use.
type RuleInput struct {
	Tool      string
	Arguments json.RawMessage // canonical, valid against the tool's schema
	Effect    toolcrib.Effect // effect of this call
	Targets   []toolcrib.Target
	Hidden    []string           // paths below targets that the call cannot touch, nor anything below them
	Programs  []toolcrib.Program // programs that the call starts
	Who       *toolcrib.Principal
	Agent     string
	Run       toolcrib.RunID
	Session   toolcrib.SessionID
	Depth     int
	Workspace string
	Taint     []string // sources of untrusted data that the run has read
}

// RuleMatch is one rule that applies to a call.
type RuleMatch struct {
	RuleInfo
	// Undecided reports that only running the call would show whether the rule applies. Such a rule
	// allows nothing. If it asks or denies, a person is asked. If it denies, only a decision on
	// this call answers the question, so the call is refused in a run that approves everything
	// beforehand ([Scope.AllApproved]).
	Undecided bool
	// Folders are those that made the rule undecided, because the call may touch something in them.
	Folders []string
	// Err is the error if the rule could not be evaluated. The call is then refused.
	Err error
}

// RuleThen is the decision of a rule about the calls that it applies to.
type RuleThen string

const (
	RuleAllow RuleThen = "allow" // lifts the question of tools.confirm, and nothing else
	RuleAsk   RuleThen = "ask"
	RuleDeny  RuleThen = "deny"
)

// RuleInfo describes a rule without judging by it.
type RuleInfo struct {
	Name     string   `json:"name"`
	When     string   `json:"when"` // "" means always
	Then     RuleThen `json:"then"`
	Message  string   `json:"message,omitempty"` // the author's, for the model or the person who is asked
	Position string   `json:"position,omitempty"`
}

// ruleStep refuses a call that a rule denies, a call for which a rule could not be evaluated, and a
// call that a rule may deny if no person would be asked. Deny takes precedence over ask, and ask
// over allow, in whatever order the rules are; of equal decisions the first is reported.
func (j *judgement) ruleStep() *refusal {
	if j.facts.DryRun {
		j.verdict.Programs = j.plan.Programs
	}
	if j.gate.options.Rules == nil {
		return nil
	}
	var denied, failed, mayDeny *RuleMatch
	matches := j.matches()
	for i := range matches {
		m := &matches[i]
		switch {
		case m.Err != nil:
			failed = cmp.Or(failed, m)
		case m.Undecided && m.Then == RuleAllow:
		case m.Then == RuleAsk:
			j.ruleAsks = cmp.Or(j.ruleAsks, m)
		case m.Then == RuleAllow:
			j.ruleAllows = cmp.Or(j.ruleAllows, m)
		case m.Undecided:
			mayDeny = cmp.Or(mayDeny, m)
		default: // deny, and any invalid decision
			denied = cmp.Or(denied, m)
		}
	}
	switch {
	case denied != nil:
		return j.ruleDenied(denied)
	case failed != nil:
		return j.byRule(failed, "a rule about %s could not be evaluated, so the call was refused. Continue without it.",
			j.name()).because("", failed.Err.Error())
	case mayDeny != nil && j.scope.AllApproved:
		return j.ruleDenied(mayDeny).because("", "only the call itself will show whether the rule applies; "+
			"--approve all does not answer that, so run it without, and a person is asked")
	}
	j.ruleMayDeny = mayDeny
	return nil
}

// matches returns the rules that apply to the call. If it is not known whether the call touches what a rule denies, and
// the tool can hide that from the call, it is hidden.
func (j *judgement) matches() []RuleMatch {
	in := RuleInput{
		Tool: policyName(&j.entry.spec), Arguments: j.call.Arguments, Effect: j.effect, Targets: j.targets,
		Hidden: j.plan.Hidden, Programs: j.plan.Programs, Who: j.who, Agent: j.scope.Agent, Run: j.facts.Run,
		Session: j.facts.Session, Depth: j.scope.Depth, Workspace: j.scope.Workspace, Taint: j.facts.Taint,
	}
	matches := j.gate.options.Rules.Judge(j.ctx, in)
	denies := func(m RuleMatch) bool { return m.Err != nil || m.Then != RuleAsk && m.Then != RuleAllow }
	var folders []string
	for i := range matches {
		if m := &matches[i]; denies(*m) && m.Undecided {
			folders = append(folders, m.Folders...)
		}
	}
	if len(folders) == 0 || j.plan.Hide == nil {
		return matches
	}
	plan := j.plan.Hide(folders)
	if plan == nil {
		return matches
	}
	in.Hidden = folders
	if without := j.gate.options.Rules.Judge(j.ctx, in); !slices.ContainsFunc(without, denies) {
		j.setPlan(plan)
		return without
	}
	return matches
}

func (j *judgement) ruleDenied(m *RuleMatch) *refusal {
	if m.Message != "" {
		return j.byRule(m, "%s", m.Message)
	}
	return j.byRule(m, "%s is not allowed with these arguments (rule %s). Continue without it.", j.name(), shown(m.Name))
}

func (j *judgement) byRule(m *RuleMatch, format string, args ...any) *refusal {
	r := refuse(format, args...).at(m.Position)
	r.rule = m.Name
	return r
}

// question returns the question of a rule. A different message of its author makes it a different
// question.
func (m *RuleMatch) question() journal.Question {
	q := journal.Question{Reason: toolcrib.ReasonNeedsConfirmation, Rule: m.Name, Text: m.ask()}
	if m.Then != RuleAsk {
		q.Reason = toolcrib.ReasonRuleDenied
	}
	if m.Message != "" {
		q.Says = hashed(m.Message)
	}
	return q
}

// hashed returns a short hash of a text that is only compared for equality.
func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

// ask returns the text of that question.
func (m *RuleMatch) ask() string {
	text := "rule " + shown(m.Name) + " asks"
	if m.Undecided {
		text += ", because only the call itself will show whether it applies"
	}
	if message := strings.TrimSpace(m.Message); message != "" {
		text += ": " + guard.Cut(message, maxPersonWords)
	}
	return strings.ReplaceAll(text, ";", ",") // so that neither name nor message reads like another question
}
