package acp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

// option is an answer that the person can choose.
type option struct {
	id, name string
	kind     sdk.PermissionOptionKind
}

// IDs of answers.
const (
	yes    = "yes"
	always = "always"
	narrow = "always_narrow"
	no     = "no"
	later  = "later"
)

// alwaysIDs are the answers for the scopes of [propose.Always].
var alwaysIDs = [...]string{always, narrow}

var laterOption = option{later, "Decide later", sdk.PermissionOptionKindRejectOnce}

// Answer implements [service.Person]. The service binds the answer to the digest of what is shown here. Without an
// answer the run stays parked.
func (o *Session) Answer(ctx context.Context, q service.Question) (a service.Answer, ok bool, err error) {
	if q.Problem != "" {
		o.Say(q.Problem)
	}
	if q.Problem != "" || o.left[q.Ask.ApprovalID] {
		return a, false, nil
	}
	defer func() {
		if !ok || len(a.Calls) > 0 && len(a.Calls) < len(q.Ask.Calls) {
			o.left[q.Ask.ApprovalID] = true
		}
	}()
	switch {
	case q.Limit != nil:
		return o.askLimit(ctx, &q)
	case q.Ask.Kind == journal.ApprovalInput:
		return o.askInput(ctx, &q)
	}
	a.Calls = map[string]journal.CallDecision{}
	for i := range q.Ask.Calls {
		c := &q.Ask.Calls[i]
		var d journal.CallDecision
		chosen := o.ask(ctx, &q, o.item(&q, c), optionsOf(&q, c))
		switch chosen {
		case yes, always, narrow:
			d.Decision = journal.DecisionApprove
		case no:
			d.Decision = journal.DecisionDeny
		case journal.DecisionRetry, journal.DecisionNotHappened:
			d.Decision = chosen
		case journal.DecisionHappened:
			d.Decision, d.Result = chosen, json.RawMessage(`{"done":true}`)
		default: // what was decided before remains
			return a, len(a.Calls) > 0 && ctx.Err() == nil, nil
		}
		if i := slices.Index(alwaysIDs[:], chosen); i >= 0 {
			a.Remember = &propose.Always(q.Ask.Calls, q.Session)[i]
		}
		a.Calls[c.ID] = d
	}
	if len(q.Ask.Calls) == 1 && q.Ask.Kind == journal.ApprovalCall {
		a.Decision, a.Calls = a.Calls[q.Ask.Calls[0].ID].Decision, nil
	}
	return a, true, nil
}

// optionsOf returns the answers to a question about a call: those of the terminal that need no text.
func optionsOf(q *service.Question, c *journal.ApprovalItem) []option {
	if q.Ask.Kind == journal.ApprovalInDoubt {
		list := []option{
			{journal.DecisionRetry, "Run it once more", sdk.PermissionOptionKindAllowOnce},
			{journal.DecisionHappened, "It took effect", sdk.PermissionOptionKindAllowOnce},
			{journal.DecisionNotHappened, "It did not take effect", sdk.PermissionOptionKindRejectOnce},
			laterOption,
		}
		if q.Another {
			list = list[1:]
		}
		return list
	}
	list := []option{{yes, "Yes, once", sdk.PermissionOptionKindAllowOnce}}
	if one := []journal.ApprovalItem{*c}; len(q.Ask.Calls) == 1 && propose.Rememberable(one) {
		for i, r := range propose.Always(one, q.Session) {
			name := "Always: " + render.AlwaysText(one, r)
			list = append(list, option{alwaysIDs[i], name, sdk.PermissionOptionKindAllowAlways})
		}
	}
	return append(list, option{no, "No", sdk.PermissionOptionKindRejectOnce}, laterOption)
}

// item returns a call of the question, with its preview, which the digest covers.
func (o *Session) item(q *service.Question, c *journal.ApprovalItem) sdk.ToolCallUpdate {
	v := o.show(c.Name, c.Arguments)
	id := o.callID(c.ID)
	if string(q.Run) != o.run { // a run below asks
		id = sdk.ToolCallId(toolcrib.ShortID(string(q.Run)) + "/" + c.ID)
	}
	if p := c.Preview; p != nil && p.Text != "" {
		v.content = nil
		if p.Kind == "diff" && len(v.locations) > 0 {
			v.content = diffs(v.locations[0].Path, p.Text)
		}
		if v.content == nil {
			v.content = textContent(p.Text)
		}
	}
	why := "Why you are asked: " + cmp.Or(c.Reason, q.Ask.Reason)
	if q.Ask.Kind == journal.ApprovalInDoubt {
		why = "It was cut off while it ran, and it is not known whether it took effect."
	}
	if c.Changed != "" {
		why += "\nChanged since: " + c.Changed
	}
	if c.Name == "exec_shell" || len(v.content) == 0 {
		why = render.Whole(c.Arguments) + "\n\n" + why
	}
	return sdk.ToolCallUpdate{
		ToolCallId: id, Title: &v.title, Kind: &v.kind, Status: sdk.Ptr(sdk.ToolCallStatusPending),
		Content: append(v.content, textContent(why)...), Locations: v.locations, RawInput: c.Arguments,
	}
}

// ask puts a question and returns the ID of the chosen option, or later.
func (o *Session) ask(ctx context.Context, q *service.Question, call sdk.ToolCallUpdate, options []option) string {
	list := make([]sdk.PermissionOption, len(options))
	for i, one := range options {
		list[i] = sdk.PermissionOption{
			OptionId: sdk.PermissionOptionId(one.id), Name: guard.Visible(o.s.Mask(one.name)), Kind: one.kind,
		}
	}
	r, err := sdk.SendRequest[sdk.RequestPermissionResponse](o.s.conn, ctx, sdk.ClientMethodSessionRequestPermission,
		sdk.RequestPermissionRequest{
			SessionId: o.id, ToolCall: call, Options: list,
			Meta: map[string]any{"toolcrib/approval_id": q.Ask.ApprovalID, "toolcrib/digest": q.Ask.Digest},
		})
	if err != nil || ctx.Err() != nil || r.Outcome.Selected == nil {
		return later
	}
	chosen := string(r.Outcome.Selected.OptionId)
	if !slices.ContainsFunc(options, func(one option) bool { return one.id == chosen }) {
		return later
	}
	return chosen
}

// askInput asks a question of the model that has options. Any other is answered by the next message.
func (o *Session) askInput(ctx context.Context, q *service.Question) (a service.Answer, ok bool, err error) {
	words, many := service.AnswerOptions(q.Ask.Schema)
	if len(words) == 0 && service.Choices(q.Ask.Schema) == "yes or no" {
		words = []string{"yes", "no"}
	}
	const most = 20
	if len(words) == 0 || many || len(words) > most {
		o.Say(q.Ask.Question)
		return a, false, nil
	}
	var options []option
	for i, word := range words {
		options = append(options, option{strconv.Itoa(i), word, sdk.PermissionOptionKindAllowOnce})
	}
	options = append(options, option{no, "No answer", sdk.PermissionOptionKindRejectOnce}, laterOption)
	switch chosen := o.ask(ctx, q, o.question(q, q.Ask.Question), options); chosen {
	case later:
		return a, false, nil
	case no:
		return service.Answer{Decision: journal.DecisionDeny}, true, nil
	default:
		i, err := strconv.Atoi(chosen)
		if err != nil {
			return a, false, err
		}
		return service.Answer{Decision: journal.DecisionAnswer, Text: words[i]}, true, nil
	}
}

// more is how much of a limit is offered, by its unit.
var more = map[string]string{"rounds": "10", "requests": "10", "tokens": "100000", "US dollars": "1"}

// askLimit asks whether a limit is raised.
func (o *Session) askLimit(ctx context.Context, q *service.Question) (a service.Answer, ok bool, err error) {
	amount := cmp.Or(more[q.Limit.Unit], "1")
	chosen := o.ask(ctx, q, o.question(q, "A limit was reached: "+q.Ask.Reason), []option{
		{yes, fmt.Sprintf("%s %s more", amount, q.Limit.Unit), sdk.PermissionOptionKindAllowOnce},
		{no, "No more: it ends with what it has", sdk.PermissionOptionKindRejectOnce},
		laterOption,
	})
	switch chosen {
	case yes:
		a.Text = amount
	case no:
		a.Decision = journal.DecisionDeny
	}
	return a, chosen != later, nil
}

// question returns a question that is not about one call.
func (o *Session) question(q *service.Question, text string) sdk.ToolCallUpdate {
	return sdk.ToolCallUpdate{
		ToolCallId: sdk.ToolCallId(q.Ask.ApprovalID), Title: sdk.Ptr(render.Line(text, maxTitle)),
		Kind: sdk.Ptr(sdk.ToolKindOther), Status: sdk.Ptr(sdk.ToolCallStatusPending), Content: textContent(text),
	}
}
