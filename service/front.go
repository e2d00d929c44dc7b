package service

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/worker"
)

// Front receives the events of a run and answers its questions. The zero value does neither.
type Front struct {
	// Watch receives the frames of the run, but not those of runs that it starts. It must not block. It may be nil.
	Watch func(journal.Frame)
	// SincePause also sends Watch the events that another process writes while the run is parked, such as the decision.
	// The stream of a resumed run begins with those since its last pause.
	SincePause bool
	// Driving is called before the run is driven. before is nil for a new run. Driving may be nil.
	Driving func(before *Run)
	// Named is called with the ID of the run before anything is written. It may be nil.
	Named func(toolcrib.RunID)
	// Said returns what the person adds to the run while it is driven, or "". It may be nil.
	Said func() string
	// Hurry receives a value when the person is content with the answers that a team has. It may be nil.
	Hurry <-chan *agent.CancelError
	// Approver is asked about calls that need an approval while the run continues. If it is nil, the run parks first and
	// then Person is asked.
	Approver agent.Approver
	// Person is asked for the answer that a parked run waits for. It may be nil.
	Person Person
	// Buffers are the texts of files in the person's editor. It may be nil.
	Buffers toolcrib.Buffers
	Log     *slog.Logger // if nil, that of the options

	work *worker.Work // work of the worker that drives the run, or nil
}

// Person answers questions while a run is driven.
type Person interface {
	// Answer asks the person. If ok is false, the question stays open and is not asked again.
	Answer(ctx context.Context, q Question) (a Answer, ok bool, err error)
}

// Question is a question that a parked run waits for.
type Question struct {
	Run     toolcrib.RunID
	Ask     journal.ConfirmationRequired // with the open calls
	Limit   *Limit                       // the limit to raise, or nil for another question
	Another bool                         // only another person may repeat calls in doubt
	Nested  bool                         // the question is asked by a running call
	Session bool                         // the run belongs to a session
	Problem string                       // why the last answer is not valid; "" the first time
}

// Answer is a person's answer to a [Question].
type Answer struct {
	// Decision applies to all calls, unless it is journal.DecisionMixed. It is "" if Text raises a limit.
	Decision string
	Calls    map[string]journal.CallDecision
	Reason   string
	Remember *journal.Remember
	Text     string // the answer to a question of the model, or the amount that is added to a limit
	Client   string // the program that answers for the person, or ""
}

// Limit is a limit that a person may raise.
type Limit struct {
	Unit, Flag string
	More       func(text string) (journal.Granted, error) // parses the amount to add
}

// MaxAddedCost is more than can be added at once. A larger amount is a typing error.
const MaxAddedCost = 1e6

// LimitOf returns the limit that was reached, from the reason of a pause.
func LimitOf(reason string) Limit {
	counted := func(unit, flag string, granted func(n int) journal.Granted) Limit {
		return Limit{Unit: unit, Flag: flag, More: func(text string) (journal.Granted, error) {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				return journal.Granted{}, env.BadRequestf("must be a number from 1, or n")
			}
			return granted(n), nil
		}}
	}
	switch {
	case strings.HasPrefix(reason, "budget.max_cost_usd"):
		return Limit{Unit: "US dollars", Flag: "--add-cost USD", More: func(text string) (journal.Granted, error) {
			usd, err := strconv.ParseFloat(strings.TrimPrefix(text, "$"), 64)
			if err != nil || !(usd > 0 && usd < MaxAddedCost) {
				return journal.Granted{}, env.BadRequestf("must be an amount such as 0.50, or n")
			}
			return journal.Granted{CostUSD: usd}, nil
		}}
	case strings.HasPrefix(reason, "budget.max_tokens"):
		return counted("tokens", "--add-tokens N", func(n int) journal.Granted { return journal.Granted{Tokens: int64(n)} })
	case strings.HasPrefix(reason, "budget.max_requests"):
		return counted("requests", "--add-requests N", func(n int) journal.Granted { return journal.Granted{Requests: n} })
	}
	return counted("rounds", "--add-iterations N", func(n int) journal.Granted { return journal.Granted{Iterations: n} })
}

// answerShape has the parts of the schema of an answer that can be described to a person.
type answerShape struct {
	Type             string            `json:"type"`
	Enum             []json.RawMessage `json:"enum"`
	Minimum, Maximum json.Number
	Items            json.RawMessage            `json:"items"`
	Properties       map[string]json.RawMessage `json:"properties"`
	Required         []string                   `json:"required"`
}

func shapeOf(schema json.RawMessage) (s answerShape) {
	if len(schema) == 0 || json.Unmarshal(schema, &s) != nil {
		return answerShape{}
	}
	return s
}

// AnswerOptions returns the possible answers to a question as a person would write them, or nil if its schema has none.
// many is set if several may be chosen.
func AnswerOptions(schema json.RawMessage) (words []string, many bool) {
	known := shapeOf(schema)
	if known.Type == "array" && len(known.Enum) == 0 {
		words, _ = AnswerOptions(known.Items)
		return words, true
	}
	for _, raw := range known.Enum {
		var text string
		if json.Unmarshal(raw, &text) != nil || string(raw) == "null" {
			text = string(raw)
		}
		words = append(words, text)
	}
	return words, false
}

// Choices describes the possible answers. "" means any text.
func Choices(schema json.RawMessage) string {
	known := shapeOf(schema)
	options, many := AnswerOptions(schema)
	switch {
	case many && len(options) > 0:
		return "some of these, separated by commas: " + strings.Join(options, ", ")
	case many:
		return "a list, separated by commas, or JSON that fits " + string(schema)
	case len(options) > 0:
		return "one of: " + strings.Join(options, ", ")
	case len(schema) == 0, known.Type == "string":
		return ""
	case known.Type == "boolean":
		return "yes or no"
	case known.Type == "integer" || known.Type == "number":
		return map[string]string{"integer": "a whole number", "number": "a number"}[known.Type] + known.bounds()
	case known.Type == "object" && len(known.Properties) > 0:
		return "a JSON object with " + known.fields()
	}
	return "JSON that fits " + string(schema)
}

func (s *answerShape) bounds() (text string) {
	if s.Minimum != "" {
		text = " from " + string(s.Minimum)
	}
	if s.Maximum != "" {
		text += " up to " + string(s.Maximum)
	}
	return text
}

// fields describes the fields of an object.
func (s *answerShape) fields() string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		about := cmp.Or(Choices(s.Properties[name]), "a text")
		if !slices.Contains(s.Required, name) {
			about = "optional; " + about
		}
		list = append(list, fmt.Sprintf("%q (%s)", name, about))
	}
	return strings.Join(list, ", ")
}

// AnswerJSON returns a person's answer as JSON: a string, unless the schema of the question requires another type.
func AnswerJSON(schema json.RawMessage, text string) (json.RawMessage, error) {
	answer, err := json.Marshal(text)
	if err != nil {
		return nil, err
	}
	known := shapeOf(schema)
	if lower := strings.ToLower(text); known.Type == "boolean" && slices.Contains([]string{"y", "yes", "n", "no"}, lower) {
		text = strconv.FormatBool(lower[0] == 'y')
	}
	if as := json.RawMessage(text); known.Type != "string" && json.Valid(as) && gate.CheckAnswer(schema, as) == nil {
		return as, nil
	}
	if options, many := AnswerOptions(schema); many && !strings.HasPrefix(text, "[") {
		parts := chosen(text, options)
		all := make([]json.RawMessage, len(parts))
		for i, part := range parts {
			if all[i], err = AnswerJSON(known.Items, part); err != nil {
				return nil, env.BadRequestf("the answer must be %s", Choices(schema))
			}
		}
		if answer, err = json.Marshal(all); err != nil {
			return nil, err
		}
	}
	if gate.CheckAnswer(schema, answer) != nil {
		return nil, env.BadRequestf("the answer must be %s", cmp.Or(Choices(schema), "a text that fits "+string(schema)))
	}
	return answer, nil
}

// chosen splits a text at commas. An option may have commas of its own.
func chosen(text string, options []string) (parts []string) {
	for more := true; more; {
		text = strings.TrimSpace(text)
		end := strings.IndexByte(text+",", ',')
		for _, option := range options {
			rest, ok := strings.CutPrefix(text, option)
			if rest = strings.TrimSpace(rest); ok && len(option) > end && (rest == "" || rest[0] == ',') {
				end = len(option)
			}
		}
		parts = append(parts, strings.TrimSpace(text[:end]))
		_, text, more = strings.Cut(text[end:], ",")
	}
	return parts
}

// NextCommands returns what a run waits for and the commands that continue it. self is the program's name in them, and
// resumer the one in commands that resume a run ([Resumer]).
func NextCommands(
	self, resumer string, run toolcrib.RunID, ask *journal.ConfirmationRequired, withDigest bool,
) (what string, commands []string) {
	id, digest := guard.Visible(toolcrib.ShortID(ask.ApprovalID)), ""
	if withDigest {
		digest = " --digest " + ask.Digest
	}
	decide := func(verb, rest string) string {
		return fmt.Sprintf("%s approvals %s %s%s%s --resume", self, verb, id, rest, digest)
	}
	switch {
	case ask.Kind == journal.ApprovalInDoubt:
		return "a decision on calls in doubt", []string{
			decide("resolve", " --retry"), decide("resolve", ` --happened '{"done":true}'`),
			decide("resolve", " --not-happened"),
		}
	case ask.Kind == journal.ApprovalInput && len(ask.Calls) == 0:
		return "a higher limit", []string{
			fmt.Sprintf("%s runs resume %s %s", resumer, toolcrib.ShortID(run), LimitOf(ask.Reason).Flag),
			decide("deny", ""),
		}
	case ask.Kind == journal.ApprovalInput:
		return "an answer", []string{decide("answer", ` "YOUR ANSWER"`), decide("deny", "")}
	}
	return "an approval", []string{decide("approve", ""), decide("deny", "")}
}

// NeedsAnother reports whether a person other than who must approve the calls of a user's runs (approvals.four_eyes).
func (s *Service) NeedsAnother(who toolcrib.Principal, user string) bool {
	return s.Env.Config.Approvals.FourEyes && who.User == user
}

// reportFourEyes reports that --approve all approves nothing under approvals.four_eyes.
func (s *Service) reportFourEyes(who toolcrib.Principal, user string, approve agent.Approve, tell func(string)) {
	if approve == agent.ApproveAll && s.NeedsAnother(who, user) {
		s.Env.Once(tell)("approvals.four_eyes: --approve all is your own decision and approves nothing; " +
			"calls that need an approval wait for another person")
	}
}
