package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

// deciding is the data of the template decide: an approval with its calls and the form to decide.
type deciding struct {
	*service.Approval
	Items   []decidingCall
	Many    bool    // several calls are open
	Another bool    // another person must approve
	Limit   string  // key of the text of the limit to raise, or ""
	Form    *field  // for the answer to a question
	Scopes  []scope // for which the approval can be remembered
	Covers  []cover // which calls it can be remembered for
	Anyway  []string
	Tainted bool // remembered approvals do not apply to this run
	Next    string
	Typed   typed
}

// decidingCall is a call of an approval.
type decidingCall struct {
	*api.ApprovalCall
	Values []argument // of an object
	Diff   []diffLine
	Text   string // preview of another kind
	Result string // result as it was typed
	Edit   bool   // its arguments can be edited
}

// argument is an argument of a call. Text is a value of several lines or words, JSON any other.
type argument struct {
	Name string
	Text string
	JSON json.RawMessage
}

type diffLine struct{ Class, Text string }

// scope and cover are choices of a form, with keys of texts.
type (
	scope struct{ Value, Key string }
	cover struct{ Value, Key, Of string }
)

// decisionSign returns the sign of a decision: that of the status allow, deny or ask.
func decisionSign(decision string) string {
	switch decision {
	case journal.DecisionApprove, journal.DecisionAnswer, journal.DecisionRetry, journal.DecisionHappened, "grant":
		return "allow"
	case journal.DecisionDeny, journal.DecisionNotHappened:
		return "deny"
	}
	return "ask"
}

// typed has the values of a form as it was sent.
type typed struct{ Reason, Scope, Cover, Amount, Arguments string }

// decideData returns the data of the template decide.
func (p *page) decideData(v *service.Approval) *deciding {
	d := &deciding{Approval: v, Tainted: len(v.Taint()) > 0}
	open := v.Open()
	d.Many = len(open) > 1
	d.Another = p.needsAnother(v)
	for i := range v.Calls {
		d.Items = append(d.Items, newDecidingCall(v, &v.Calls[i]))
	}
	switch {
	case v.Kind == journal.ApprovalInput && len(v.Calls) == 0:
		unit := strings.Fields(service.LimitOf(v.Reason).Unit)
		d.Limit = "approvals.unit_" + unit[len(unit)-1]
	case v.Kind == journal.ApprovalInput:
		d.Form = fieldsOf(v.Schema, "answer", nil)
	case v.Kind == journal.ApprovalCall && p.Who.Token == "":
		d.remembering(v.Items(open))
	}
	return d
}

func newDecidingCall(v *service.Approval, c *api.ApprovalCall) decidingCall {
	one := decidingCall{ApprovalCall: c, Values: argumentsOf(c.Arguments)}
	one.Edit = v.Kind == journal.ApprovalCall && c.Decision == "" && v.Status == api.ApprovalPending
	if c.Preview != nil && len(c.Edited) == 0 { // it is of the model's arguments
		if c.Preview.Kind == "diff" {
			one.Diff = diffLines(c.Preview.Text)
		} else {
			one.Text = c.Preview.Text
		}
	}
	return one
}

// argumentsOf returns the arguments of a call in their order, or nil if they are not an object.
func argumentsOf(raw json.RawMessage) []argument {
	var all properties
	if json.Unmarshal(raw, &all) != nil {
		return nil
	}
	list := make([]argument, len(all))
	for i, p := range all {
		list[i] = argument{Name: p.name, JSON: p.schema}
		if json.Unmarshal(p.schema, &list[i].Text) == nil && strings.TrimSpace(list[i].Text) != "" {
			list[i].JSON = nil
		}
	}
	return list
}

// hunk matches the line of a unified diff above lines of a file, with the numbers of old and new lines.
var hunk = lazyregexp.New(`^@@ -[0-9]+(?:,([0-9]+))? \+[0-9]+(?:,([0-9]+))? @@`)

// diffLines returns the lines of a unified diff with their kinds. A line of a file may look like a heading.
func diffLines(text string) []diffLine {
	var all []diffLine
	left := [2]int{} // lines of the hunk that follow, old and new
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		class, inside := "", left[0] > 0 || left[1] > 0
		switch found := hunk.FindStringSubmatch(line); {
		case inside && strings.HasPrefix(line, "+"):
			class, left[1] = "add", left[1]-1
		case inside && strings.HasPrefix(line, "-"):
			class, left[0] = "del", left[0]-1
		case inside && !strings.HasPrefix(line, `\`):
			left = [2]int{left[0] - 1, left[1] - 1}
		case found != nil:
			class = "hunk"
			for i := range left {
				left[i], _ = strconv.Atoi(cmp.Or(found[i+1], "1")) // it consists of digits
			}
		case strings.HasPrefix(line, `\`):
			class = "hunk"
		case !inside:
			class = "file"
		}
		all = append(all, diffLine{class, line})
	}
	return all
}

// remembering adds the scopes and the calls for which an approval can be remembered.
func (d *deciding) remembering(calls []journal.ApprovalItem) {
	if len(calls) == 0 || !propose.Storable(calls) {
		return
	}
	d.Scopes = []scope{{journal.RememberRun, "approvals.remember_run"}}
	if d.Session() != "" {
		d.Scopes = append(d.Scopes, scope{journal.RememberSession, "approvals.remember_session"})
	}
	d.Scopes = append(d.Scopes, scope{journal.RememberUser, "approvals.remember_user"})
	for _, kind := range calls[0].RememberKinds() {
		other := func(c journal.ApprovalItem) bool { return !slices.Contains(c.RememberKinds(), kind) }
		if slices.ContainsFunc(calls, other) {
			continue
		}
		m, ok := journal.Remember{Scope: journal.RememberRun, Calls: kind}.Extend(&journal.ConfirmationResolved{}, &calls[0])
		if ok {
			d.Covers = append(d.Covers, coverOf(kind, &m, &calls[0], len(calls) > 1))
		}
	}
	for _, c := range calls {
		for _, q := range c.Questions {
			if q.Rule != "" && !slices.Contains(d.Anyway, q.Rule) {
				d.Anyway = append(d.Anyway, q.Rule)
			}
		}
	}
}

// coverOf returns the words for the later calls that a remembered approval applies to.
func coverOf(kind string, m *journal.Remembered, c *journal.ApprovalItem, many bool) cover {
	one := cover{Value: kind, Key: "approvals.cover_" + kind, Of: m.Tool}
	switch {
	case many:
		return cover{Value: kind, Key: "approvals.covers_" + kind}
	case kind == journal.RememberProgram:
		one.Of = m.Program
	case kind == journal.RememberArguments && c.Binding.CommandLine:
		one.Key = "approvals.cover_line"
	case m.Path != "" && m.Arguments == nil:
		one.Of = m.Path
		if rel, err := filepath.Rel(m.Workspace, m.Path); err == nil && filepath.IsLocal(rel) {
			one.Of = filepath.ToSlash(rel)
		}
		if one.Of == "." {
			one.Key = "approvals.cover_workspace"
		}
	}
	return one
}

// decide takes the form of an approval. Its value do is a decision, or one with the ID of a call.
func (p *page) decide() error {
	v, err := p.approval()
	if err != nil {
		return err
	}
	do, call, _ := strings.Cut(p.R.PostFormValue("do"), " ")
	if do == "grant" && v.Status == api.ApprovalPending {
		err = p.grant(v)
	} else {
		err = p.decideOn(v, do, call)
	}
	var wrong *wrongFields
	switch {
	case errors.As(err, &wrong):
		return p.again(v, http.StatusBadRequest, wrong.form)
	case toolcrib.CodeOf(err) == toolcrib.CodeConflict:
		return p.conflict(v, err)
	case err != nil:
		return err
	}
	return p.done(p.after(v, do))
}

// wrongFields says that fields of a form have errors, which it shows.
type wrongFields struct{ form *field }

func (*wrongFields) Error() string { return "fields have errors" }

// decideOn records a decision. Its run continues if nothing else is open.
func (p *page) decideOn(v *service.Approval, do, call string) error {
	d := service.Decision{
		CallDecision: journal.CallDecision{Decision: do}, Digest: p.R.PostFormValue("digest"),
		Reason: strings.TrimSpace(guard.Clean(p.R.PostFormValue("reason"))),
	}
	if call != "" {
		d.Calls = []string{call}
	}
	if len(d.Reason) > maxReason {
		return bad("the reason has more than %d bytes", maxReason)
	}
	if scope := p.R.PostFormValue("remember"); scope != "" && do == journal.DecisionApprove {
		d.Remember = &journal.Remember{Scope: scope, Calls: p.R.PostFormValue("remember_calls")}
	}
	switch do {
	case journal.DecisionAnswer:
		form := fieldsOf(v.Schema, "answer", nil)
		answer, ok := form.valueOf(p.R.PostForm)
		if !ok && v.Status == api.ApprovalPending {
			return &wrongFields{form}
		}
		d.Result = answer
	case journal.DecisionHappened:
		if err := p.results(v, &d); err != nil {
			return err
		}
	}
	if arguments := p.R.PostFormValue("arguments"); do == journal.DecisionApprove && arguments != "" {
		d.Arguments = json.RawMessage(arguments)
	}
	return p.record(v, d)
}

// maxReason bounds the reason of a decision, in bytes.
const maxReason = 4 << 10

// results adds the results of calls in doubt.
func (p *page) results(v *service.Approval, d *service.Decision) error {
	ids := d.Calls
	if len(ids) == 0 {
		ids = v.Open()
	}
	d.Each = map[string]journal.CallDecision{}
	for _, id := range ids {
		raw, err := guard.Canonical([]byte(cmp.Or(strings.TrimSpace(p.R.PostFormValue("result "+id)), "null")))
		if err != nil {
			return bad("result of %s: %v", id, err)
		}
		d.Each[id] = journal.CallDecision{Decision: d.Decision, Result: raw}
	}
	d.CallDecision, d.Calls = journal.CallDecision{}, nil
	return nil
}

// record appends a decision, and has the run continue.
func (p *page) record(v *service.Approval, d service.Decision) error {
	out, err := p.Service.Decide(p, p.Who, v, d)
	if err != nil || len(out.Open) > 0 {
		return err
	}
	resume := service.ResumeRequest{Run: string(out.Run), Decided: true}
	if _, err := p.Pool.Resume(context.WithoutCancel(p), p.Who, resume); err != nil {
		// the pool finds it again; a run of a command line continues there
		p.Log.Info("a run was decided on and does not continue yet", "run", out.Run, "error", err)
	}
	return nil
}

// grant raises the limit that a run has reached, once for each approval.
func (p *page) grant(v *service.Approval) error {
	limit := service.LimitOf(v.Reason)
	more, err := limit.More(strings.TrimSpace(p.R.PostFormValue("amount")))
	if err != nil {
		return err
	}
	_, err = p.Pool.Resume(context.WithoutCancel(p), p.Who, service.ResumeRequest{
		Run: string(v.Run), Add: more, Once: service.Once(p.Who, v.ID, "grant"),
	})
	return err
}

// after returns the page after a decision: the one that the form names, the approval if calls of it are still open, or
// the next one.
func (p *page) after(v *service.Approval, do string) string {
	if next := p.R.PostFormValue("next"); next != "" {
		return local(next)
	}
	said := "?said=" + do
	ids, err := p.Service.Waiting(p, p.Who)
	switch {
	case err != nil || len(ids) == 0:
		return "/approvals" + said
	case slices.Contains(ids, v.ID):
		return "/approvals/" + v.ID + said
	}
	return "/approvals/" + ids[0] + said
}

// conflict answers that a decision came too late, with the decisions so far. The input is kept.
func (p *page) conflict(v *service.Approval, cause error) error {
	now, err := p.Service.Approval(p, p.Who, v.ID)
	if err != nil {
		return cause
	}
	if p.enhanced() {
		return p.part("approval", "approval-outcome", http.StatusConflict, now)
	}
	return p.again(now, http.StatusConflict, nil)
}

// again shows an approval with the input. form is the one with errors, or nil.
func (p *page) again(v *service.Approval, status int, form *field) error {
	if form != nil && p.enhanced() {
		return p.part("approval", "schema-errors", status, form.wrongs())
	}
	view := p.approvalView(v)
	view.Conflict = status == http.StatusConflict
	view.Decide.Typed = typed{
		Reason: p.R.PostFormValue("reason"), Scope: p.R.PostFormValue("remember"),
		Cover: p.R.PostFormValue("remember_calls"), Amount: p.R.PostFormValue("amount"),
		Arguments: p.R.PostFormValue("arguments"),
	}
	if form != nil {
		view.Decide.Form = form
	}
	for i := range view.Decide.Items {
		c := &view.Decide.Items[i]
		c.Result = p.R.PostFormValue("result " + c.ID)
	}
	return p.render("approval", status, view)
}
