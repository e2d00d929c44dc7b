package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// Bounds of the texts that a person is shown before deciding, and of those that a person writes.
const (
	maxPreviewLines = 20
	maxPreviewLine  = 500 // characters
	previewTimeout  = 5 * time.Second
	maxPersonWords  = 1000 // bytes
)

// question is the question of tools.confirm about a call.
type question struct {
	asks   bool
	tool   string
	effect toolcrib.Effect
	mode   ConfirmMode
	key    string // key path of the configuration
}

// question reports whether a call of this effect is shown to a person. tools.settings.X.confirm
// replaces tools.confirm; if it is always, nothing lifts the question.
func (g *Gate) question(e *entry, effect toolcrib.Effect) question {
	q := question{tool: e.spec.Name, effect: effect, mode: g.options.Confirm, key: "tools.confirm"}
	if e.settings.Confirm != "" {
		q.mode, q.key = e.settings.Confirm, ConfirmSetting(e.spec.Name)
	}
	q.asks = q.mode.asks(effect)
	return q
}

// ConfirmSetting returns the key path of the confirm setting of one tool.
func ConfirmSetting(tool string) string { return "tools.settings." + tool + ".confirm" }

// AlwaysAsks reports whether tools.settings requires a person's answer for each call of the tool.
// Nothing lifts that, so it makes no sense to remember an approval.
func (g *Gate) AlwaysAsks(tool string) bool {
	e := g.toolSet().byName[tool]
	return e != nil && e.settings.Confirm == ConfirmAlways
}

// why returns the question in words, which are the same for the same policy and effect.
func (q question) why() string {
	does := "only reads"
	if q.effect.Writes() {
		does = "writes (" + string(q.effect) + ")"
	}
	mode := q.mode
	if mode == "" {
		mode = ConfirmAlways
	}
	return fmt.Sprintf("%s %s; %s is %s", q.tool, does, q.key, mode)
}

// confirmStep is the last step. It asks a person about a call that is otherwise allowed, or applies
// a decision that was made.
func (j *judgement) confirmStep() *refusal {
	decided := j.facts.Decided[j.asked.ID]
	if decided.Decision == journal.DecisionDeny {
		return j.denied(decided)
	}
	if j.entry.spec.AnsweredBy == toolcrib.ByPerson && j.scope.Unattended {
		return refuse("nobody is there to answer in this run. Continue with what you know, and say what you assumed.")
	}
	asks := j.questions()
	retried := decided.Retried && !j.facts.Past
	if still := slices.DeleteFunc(slices.Clone(asks), asked.pointless); len(asks) > 0 && j.noEffect() && !retried {
		if asks = still; len(asks) == 0 {
			j.effect, j.verdict.NoEffect = toolcrib.EffectReadOnly, true
		}
	}
	if len(asks) == 0 && !retried {
		return nil
	}
	approved := (retried || decided.Decision == journal.DecisionApprove) && answers(decided.Asked, asks)
	if approved {
		j.verdict.Approval, j.verdict.ApprovedBy, j.verdict.Detail = "", "", "" // those of a remembered approval
	}
	if approved && (decided.Unbound || j.facts.Past) {
		j.verdict.Approval = decided.ApprovalID
		return nil
	}
	if retried && !approved {
		asks = append([]asked{j.retry()}, asks...) // a question of its own, which --approve all must not answer
	}
	unlisted := func(a asked) bool { return a.Reason == toolcrib.ReasonUnlistedProgram }
	if (j.scope.Unattended || j.scope.AllApproved && slices.ContainsFunc(asks, unlisted)) && !approved {
		return j.unattended(asks)
	}
	v := j.verdict
	var now *journal.Binding
	if !j.facts.Past {
		var r *refusal
		if now, r = j.bind(); r != nil {
			return r
		}
	}
	if approved {
		if decided.Begun && decided.Binding != nil {
			now.Files = decided.Binding.Files
		}
		if v.Changed = changedSince(decided.Binding, now); v.Changed == "" {
			v.Approval, j.call.Approved = decided.ApprovalID, now.Files
			return nil
		}
		if retried {
			asks = append([]asked{j.retry()}, asks...)
		}
		if j.scope.Unattended {
			return j.unattended(asks)
		}
	}
	j.askPerson(asks, now)
	return nil
}

// retry returns the question about an in-doubt call that a person decided to run again, if that
// decision was about another workspace or other files.
func (j *judgement) retry() asked {
	return asked{Question: journal.Question{
		Reason: toolcrib.ReasonAlreadyRan, Effect: j.effect,
		Text: j.entry.spec.Name + " was cut off while it ran, and may have taken effect",
	}}
}

// askPerson writes the verdict that asks a person about the call.
func (j *judgement) askPerson(asks []asked, now *journal.Binding) {
	v := j.verdict
	v.Decision, v.Reason, v.Message, v.Binding = toolcrib.Ask, asks[0].Reason, joinQuestions(asks), now
	if v.Changed != "" {
		v.Message = "asked again: " + v.Changed + questionSeparator + v.Message
	}
	v.Message = guard.Clean(v.Message)
	for _, a := range asks {
		a.Text = guard.Clean(a.Text)
		v.Questions = append(v.Questions, a.Question)
	}
	v.Position, v.Rule = asks[0].position, asks[0].Rule
	v.Untrusted = j.untrusted()
	j.preview()
}

// asked is one reason to ask a person about a call.
type asked struct {
	journal.Question
	position string
	instead  string // how the call could run without a person, for the model; "" if it cannot
}

// noEffect reports whether the call would change nothing, which an earlier call of the turn may change.
func (j *judgement) noEffect() bool {
	if j.facts.Past {
		return j.facts.NoEffect[j.asked.ID]
	}
	return j.plan.NoEffect && !j.afterWrite && !j.facts.Elsewhere
}

// pointless reports whether there is no need to ask about a call that would change nothing. What a rule, the tool
// or a setting of always asks is asked anyway, and so is what was done before.
func (a asked) pointless() bool {
	return a.Reason == toolcrib.ReasonTaintedFlow || a.Setting != "" && a.Mode != string(ConfirmAlways)
}

// questions returns the reasons to ask about the call, the most serious first. An allowing rule or
// a remembered approval lifts the question of tools.confirm, and no other.
func (j *judgement) questions() []asked {
	var all []asked
	if j.taintAsks != nil {
		all = append(all, asked{Question: *j.taintAsks, position: j.gate.scopePosition(j.scope, "agents.AGENT.taint.writes")})
	}
	if j.facts.Ran != nil && j.effect.Writes() && !j.facts.Begun[j.asked.ID] {
		done := does(&j.plan, j.scope.Workspace, j.targets)
		if where := j.facts.Ran(j.entry.spec.Name, j.asked.Arguments, done); where != "" {
			all = append(all, asked{Question: journal.Question{
				Reason: toolcrib.ReasonAlreadyRan, Effect: j.effect,
				Text: fmt.Sprintf("%s did this before (%s), and that is not undone", j.entry.spec.Name, shown(where)),
			}})
		}
	}
	for _, m := range [...]*RuleMatch{j.ruleMayDeny, j.ruleAsks} {
		if m != nil {
			all = append(all, asked{Question: m.question(), position: m.Position})
		}
	}
	for _, c := range j.plan.Concerns {
		if c.Reason == toolcrib.ReasonUnlistedProgram && j.lineRemembered() {
			continue
		}
		q := journal.Question{
			Reason: c.Reason, Says: hashed(c.Why), Run: c.Run,
			Text: j.entry.spec.Name + " " + strings.ReplaceAll(c.Why, ";", ","),
		}
		if c.Run && slices.ContainsFunc(j.facts.Agreed, q.Same) {
			continue
		}
		all = append(all, asked{Question: q, instead: c.Instead})
	}
	q := j.gate.question(j.entry, j.effect)
	if !q.asks || j.lifted() {
		return all
	}
	return append(all, asked{Question: journal.Question{
		Reason: toolcrib.ReasonNeedsConfirmation, Setting: q.key, Mode: string(q.mode), Effect: q.effect, Text: q.why(),
	}, position: j.gate.position(q.key)})
}

// lifted reports whether a rule or a remembered approval answers the question of tools.confirm, and
// records which one.
func (j *judgement) lifted() bool {
	if j.entry.settings.Confirm == ConfirmAlways {
		return false
	}
	if m := j.ruleAllows; m != nil {
		j.verdict.Rule, j.verdict.Position = m.Name, m.Position
		return true
	}
	return j.takeRemembered(j.remembered())
}

// takeRemembered applies a remembered approval. It does not apply the approval that decides this
// call, because that one is bound to more.
func (j *judgement) takeRemembered(m *journal.Remembered) bool {
	decided := j.facts.Decided[j.asked.ID]
	if m == nil || decided.Decision == journal.DecisionApprove && decided.ApprovalID == m.ApprovalID {
		return false
	}
	j.verdict.Approval, j.verdict.ApprovedBy, j.verdict.Detail = m.ApprovalID, m.By,
		"remembered for the "+m.Scope+": approval "+m.ApprovalID+" by "+m.By
	return true
}

// lineRemembered reports whether an approval of exactly this line, or of its program, is remembered.
func (j *judgement) lineRemembered() bool {
	m := j.remembered()
	return m != nil && (m.Arguments != nil || m.Program != "") && j.entry.settings.Confirm != ConfirmAlways &&
		j.takeRemembered(m)
}

// unattended refuses a call that needs an approval in a run where no person can give one.
func (j *judgement) unattended(asks []asked) *refusal {
	text := j.name() + " needs a person's approval, and nobody can give one in this run. "
	for _, a := range asks {
		if a.instead != "" {
			text += shown(strings.ReplaceAll(a.Text, "\n", " ")) + ". " + a.instead + " "
		}
	}
	return refuse("%sContinue without it.", text).at(asks[0].position).because(asks[0].Reason, joinQuestions(asks))
}

// questionSeparator separates the reasons of one question, for people.
const questionSeparator = "; "

func joinQuestions(asks []asked) string {
	why := make([]string, len(asks))
	for i, a := range asks {
		why[i] = a.Text
	}
	return strings.Join(why, questionSeparator)
}

// answers reports whether the questions that were shown include all of asks. A decision on more
// questions answers these as well; a decision on fewer does not.
func answers(shown []journal.Question, asks []asked) bool {
	for _, a := range asks {
		if !slices.ContainsFunc(shown, a.Same) {
			return false
		}
	}
	return true
}

// denied refuses a call that a person denied (H16). The message is for the model.
func (j *judgement) denied(d Decided) *refusal {
	by := strings.TrimSpace(d.By)
	if by == "" {
		by = "the person who was asked"
	}
	text := fmt.Sprintf("%s was denied by %s", j.name(), shown(by))
	if reason := strings.TrimSpace(d.Reason); reason != "" {
		text += ": " + guard.Cut(reason, maxPersonWords)
	}
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return refuse("%s Do not repeat this call.", text).because(toolcrib.ReasonApprovalDenied, "approval "+d.ApprovalID)
}

// preview shows the change that the call would make. If that fails, the preview says so, and the
// person still decides.
func (j *judgement) preview() {
	if j.plan.Preview == nil {
		return
	}
	ctx, cancel := context.WithTimeout(j.ctx, previewTimeout)
	defer cancel()
	p, err := contained(j.gate, func() (toolcrib.Preview, error) { return j.plan.Preview(ctx) })
	if err != nil {
		p = toolcrib.Preview{Kind: "text", Text: "The preview failed."}
		if told := forModel(err); told != nil {
			p.Text = "The preview failed: " + told.Error()
		}
		j.verdict.Detail = guard.Cut("preview: "+err.Error(), maxDetailBytes)
	}
	if p.Kind != "diff" {
		p.Kind = "text"
	}
	if j.facts.Mask != nil { // before anything is cut, because a cut could leave part of a secret
		p.Text = j.facts.Mask(p.Text)
	}
	p.Text = boundPreview(p.Text)
	j.verdict.Preview = &p
}

// previewEnd is the number of lines that are kept at the end of a long preview.
const previewEnd = 6

// boundPreview makes hidden characters visible and keeps the first and the last lines, with the
// number of lines left out between them.
func boundPreview(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	first, last := lines, []string(nil)
	more := len(lines) - maxPreviewLines + 1
	if more > 1 {
		first, last = lines[:maxPreviewLines-1-previewEnd], lines[len(lines)-previewEnd:]
	}
	shown := make([]string, 0, maxPreviewLines)
	for _, line := range first {
		shown = append(shown, guard.Visible(cutRunes(line, maxPreviewLine)))
	}
	if more > 1 {
		shown = append(shown, fmt.Sprintf("… %d more lines", more))
	}
	for _, line := range last {
		shown = append(shown, guard.Visible(cutRunes(line, maxPreviewLine)))
	}
	return strings.Join(shown, "\n")
}

// cutRunes shortens s to at most limit characters: its start and its end, with the number of
// characters left out between them.
func cutRunes(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	total := utf8.RuneCountInString(s)
	if total <= limit {
		return s
	}
	const mark = "…[%d more]…"
	room := limit - utf8.RuneCountInString(fmt.Sprintf(mark, total))
	if room < 2 {
		return "…"
	}
	head, tail := 0, len(s)
	for range room - room/3 {
		_, size := utf8.DecodeRuneInString(s[head:])
		head += size
	}
	for range room / 3 {
		_, size := utf8.DecodeLastRuneInString(s[:tail])
		tail -= size
	}
	return s[:head] + fmt.Sprintf(mark, total-room) + s[tail:]
}
