package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

// put puts what a run waits for, and what is no approval, to the person at the
// terminal: a question, a limit, calls in doubt. false = nobody answered.
func (d *drive) put(ctx context.Context, r *agent.Runner, s *agent.State) (bool, error) {
	ask := s.Approval
	switch {
	case d.ask == nil || d.ask.Left(ask.ApprovalID):
		return false, nil
	case ask.Kind == journal.ApprovalInDoubt:
		return d.putDoubt(ctx, r, s)
	case ask.Kind == journal.ApprovalInput && len(ask.Calls) == 0:
		return d.putLimit(ctx, r, s)
	case ask.Kind == journal.ApprovalInput:
		return d.putQuestion(ctx, r, s)
	}
	return false, nil
}

// again shows what is wrong with an answer, so that it is asked for once more;
// false = something else is wrong.
func (d *drive) again(err error) bool {
	if !wrongUsage(err) {
		return false
	}
	d.a.complain(err.Error())
	return true
}

const leaveIt = "empty: leave it waiting"

func (d *drive) putQuestion(ctx context.Context, r *agent.Runner, s *agent.State) (bool, error) {
	ask := s.Approval
	head, asked := "The model asks you:", ask.Question
	if choices := choicesOf(ask.Schema); choices != "" {
		asked += "\n" + choices
	}
	for {
		text, ok := d.ask.Ask(ctx, ask.ApprovalID, head, asked, "your answer ("+leaveIt+")? ")
		if !ok {
			return false, nil
		}
		head = ""
		result, err := answerJSON(ask.Schema, text)
		if err == nil {
			_, err = r.Decide(ctx, s.Run, agent.Decision{
				ApprovalID: ask.ApprovalID, Digest: ask.Digest, Who: d.who, Decision: journal.DecisionAnswer, Result: result,
			})
		}
		if err == nil || !d.again(err) {
			return err == nil, err
		}
	}
}

// choicesOf tells what an answer must look like; "" = any text.
func choicesOf(schema json.RawMessage) string {
	var known struct {
		Type string            `json:"type"`
		Enum []json.RawMessage `json:"enum"`
	}
	if len(schema) == 0 || json.Unmarshal(schema, &known) != nil {
		return ""
	}
	switch {
	case len(known.Enum) > 0:
		words := make([]string, len(known.Enum))
		for i, raw := range known.Enum {
			var text string
			if words[i] = string(raw); json.Unmarshal(raw, &text) == nil {
				words[i] = text
			}
		}
		return "one of: " + strings.Join(words, ", ")
	case known.Type == "string":
		return ""
	case known.Type == "boolean":
		return "yes or no"
	case known.Type == "integer" || known.Type == "number":
		return "a number"
	}
	return "as JSON that fits " + string(schema)
}

// answerJSON is a person's answer as JSON: a text, unless the question's schema
// wants something else.
func answerJSON(schema json.RawMessage, text string) (json.RawMessage, error) {
	asText, err := json.Marshal(text)
	if err != nil {
		return nil, err
	}
	var known struct {
		Type string `json:"type"`
	}
	if len(schema) == 0 || json.Unmarshal(schema, &known) != nil {
		return asText, nil
	}
	if known.Type == "boolean" {
		switch strings.ToLower(text) {
		case "y", "yes":
			text = "true"
		case "n", "no":
			text = "false"
		}
	}
	if known.Type != "string" && json.Valid([]byte(text)) && (gate.CheckAnswer(schema, json.RawMessage(text)) == nil || gate.CheckAnswer(schema, asText) != nil) {
		return json.RawMessage(text), nil
	}
	if err := gate.CheckAnswer(schema, asText); err != nil {
		if choices := choicesOf(schema); choices != "" {
			return nil, usagef("the answer must be %s", choices)
		}
		return nil, usagef("the answer does not fit the question: %v", err)
	}
	return asText, nil
}

func (d *drive) putLimit(ctx context.Context, r *agent.Runner, s *agent.State) (bool, error) {
	ask := s.Approval
	limit := limitOf(ask.Reason)
	head := "A limit was reached: " + ask.Reason
	for {
		question := fmt.Sprintf("how many %s more (%s: no more, the run ends with what it has; %s)? ", limit.unit, render.KeyNo, leaveIt)
		text, ok := d.ask.Ask(ctx, ask.ApprovalID, head, "", question)
		if !ok {
			return false, nil
		}
		head = ""
		var err error
		switch granted, bad := limit.more(text); {
		case render.Pressed(render.YesKeys(false), text) == render.KeyNo:
			_, err = r.Decide(ctx, s.Run, agent.Decision{ApprovalID: ask.ApprovalID, Digest: ask.Digest, Who: d.who, Decision: journal.DecisionDeny})
		case bad != nil:
			err = bad
		default:
			granted.By = d.ask.By
			_, err = r.Grant(ctx, s.Run, granted)
		}
		if err == nil || !d.again(err) {
			return err == nil, err
		}
	}
}

// raisable is a limit that a person may raise.
type raisable struct {
	unit, flag string
	more       func(text string) (journal.Granted, error)
}

// limitOf tells from the reason of a pause which limit was reached.
func limitOf(reason string) raisable {
	count := func(text string) (int, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return 0, usagef("must be a number from 1, or n")
		}
		return n, nil
	}
	switch {
	case strings.HasPrefix(reason, "budget.max_cost_usd"):
		return raisable{unit: "US dollars", flag: "--add-cost USD", more: func(text string) (journal.Granted, error) {
			usd, err := strconv.ParseFloat(strings.TrimPrefix(text, "$"), 64)
			if err != nil || !(usd > 0 && usd < maxAddedCost) {
				return journal.Granted{}, usagef("must be an amount such as 0.50, or n")
			}
			return journal.Granted{CostUSD: usd}, nil
		}}
	case strings.HasPrefix(reason, "budget.max_tokens"):
		return raisable{unit: "tokens", flag: "--add-tokens N", more: func(text string) (journal.Granted, error) {
			n, err := count(text)
			return journal.Granted{Tokens: int64(n)}, err
		}}
	case strings.HasPrefix(reason, "budget.max_requests"):
		return raisable{unit: "requests", flag: "--add-requests N", more: func(text string) (journal.Granted, error) {
			n, err := count(text)
			return journal.Granted{Requests: n}, err
		}}
	}
	return raisable{unit: "rounds", flag: "--add-iterations N", more: func(text string) (journal.Granted, error) {
		n, err := count(text)
		return journal.Granted{Iterations: n}, err
	}}
}

// putDoubt asks about one call after the other.
func (d *drive) putDoubt(ctx context.Context, r *agent.Runner, s *agent.State) (bool, error) {
	word := agent.Decision{
		ApprovalID: s.Approval.ApprovalID, Digest: s.Approval.Digest, Who: d.who, Calls: map[string]journal.CallDecision{},
	}
	for _, c := range service.OpenCalls(s) {
		one, ok := d.doubt(ctx, word.ApprovalID, &c, d.another(s))
		if !ok {
			break
		}
		word.Calls[c.ID] = one
	}
	if len(word.Calls) == 0 {
		return false, nil
	}
	_, err := r.Decide(ctx, s.Run, word)
	return err == nil, err
}

// doubt asks what became of a call; another = only another person may have it run once
// more.
func (d *drive) doubt(ctx context.Context, approval string, c *journal.ApprovalItem, another bool) (word journal.CallDecision, ok bool) {
	head := "The run was cut off while this call ran; nobody knows whether it took effect."
	if another {
		head += " Only another person may run it once more."
	}
	key, ok := d.ask.AskKey(ctx, approval, head, c, render.DoubtKeys(another))
	switch key {
	case render.KeyRetry:
		word.Decision = journal.DecisionRetry
	case render.KeyNo:
		word.Decision = journal.DecisionNotHappened
	case render.KeyHappened:
		var text string
		text, ok = d.ask.Ask(ctx, approval, "", "", "what is its result, for the model to read? ")
		word.Decision, word.Result = journal.DecisionHappened, jsonOrText(text)
	}
	return word, ok
}

func jsonOrText(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	raw, err := json.Marshal(text)
	if err != nil {
		return json.RawMessage(`""`) // a text has a JSON form always
	}
	return raw
}

// wayOn is what a run waits for, and the commands that go on with it; self begins them.
func wayOn(self string, run toolcrib.RunID, ask *journal.ConfirmationRequired, withDigest bool) (what string, commands []string) {
	id, digest := guard.Visible(ask.ApprovalID), ""
	if withDigest {
		digest = " --digest " + ask.Digest
	}
	decide := func(verb, rest string) string {
		return fmt.Sprintf("%s approvals %s %s%s%s --resume", self, verb, id, rest, digest)
	}
	switch {
	case ask.Kind == journal.ApprovalInDoubt:
		return "a word on calls in doubt", []string{
			decide("resolve", " --retry"), decide("resolve", ` --happened '{"done":true}'`), decide("resolve", " --not-happened"),
		}
	case ask.Kind == journal.ApprovalInput && len(ask.Calls) == 0:
		return "a higher limit", []string{fmt.Sprintf("%s runs resume %s %s", self, run, limitOf(ask.Reason).flag), decide("deny", "")}
	case ask.Kind == journal.ApprovalInput:
		return "an answer", []string{decide("answer", ` "YOUR ANSWER"`), decide("deny", "")}
	}
	return "an approval", []string{decide("approve", ""), decide("deny", "")}
}
