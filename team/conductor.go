package team

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// spawnTool is the tool by which the conductor asks agents.
const spawnTool = "spawn"

// Join adds conductors and their workers to the options of a runner. file reads a file of a message.
// anyHost means that fetch may reach hosts that no configuration names.
func Join(o *agent.Options, file func(context.Context, *toolcrib.File) (toolcrib.OutputFile, error), anyHost bool) {
	models := o.Models
	o.Models = func(ctx context.Context, info journal.ModelInfo) (toolcrib.Model, error) {
		if info.Provider != Provider {
			return models(ctx, info)
		}
		return conductor{}, nil
	}
	o.Shape, o.Enough = workers{file, anyHost}.shape, enough
}

// conductor is the model of a team's run. Its reply depends on the request alone.
type conductor struct{}

// Stream implements [toolcrib.Model].
func (conductor) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		fail := func(text string) {
			yield(toolcrib.Delta{}, &toolcrib.ModelError{
				Class: toolcrib.ErrRefused, Provider: "team", Message: text, Unsent: true, Own: true,
			})
		}
		p := planIn(req.Extra)
		switch {
		case ctx.Err() != nil:
			yield(toolcrib.Delta{}, ctx.Err())
			return
		case p == nil || p.From >= len(req.Messages):
			fail("the plan of the run cannot be read")
			return
		}
		free := 0.0 // known, so that the cost is not estimated
		finish := &toolcrib.Finish{Reason: toolcrib.FinishStop, Usage: toolcrib.TokenUsage{CostUSD: &free, Reported: true}}
		questions, answer, err := p.next(req.Messages[p.From:])
		if cut, all := p.cutShort(req.Messages[p.From:]); cut != "" && len(questions) == 0 {
			finish.Reason = toolcrib.FinishReason(cut)
			if err != nil {
				answer, err = p.conferred(all), nil
			}
		}
		if err != nil {
			fail(err.Error())
			return
		}
		if answer != "" && !yield(toolcrib.Delta{Text: answer}, nil) {
			return
		}
		if len(questions) > 0 && !yield(toolcrib.Delta{Thinking: describe(questions)}, nil) {
			return
		}
		for i, q := range questions {
			finish.Reason = toolcrib.FinishToolCalls
			arguments := encode(map[string]any{"agent": q.agent, "task": q.task, "tools": p.toolsOf(q.role)})
			d := &toolcrib.ToolCallDelta{Index: i, ID: p.callID(q.role, q.n), Name: spawnTool, Arguments: string(arguments)}
			if !yield(toolcrib.Delta{ToolCall: d}, nil) {
				return
			}
		}
		yield(toolcrib.Delta{Finish: finish}, nil)
	}
}

// describe describes the questions of a turn to people who read the run.
func describe(questions []question) string {
	names := make([]string, len(questions))
	for i := range questions {
		names[i] = questions[i].agent
	}
	who := strings.Join(names, ", ")
	switch questions[0].role {
	case roleProposer:
		return "To propose an answer: " + who
	case roleCritic:
		return "To criticise the proposal: " + who
	case roleSynthesizer:
		return "To write the synthesis: " + who
	case roleJudge:
		return "To assess the answer: " + who
	}
	return "To answer the question: " + who
}

// encode encodes JSON without escapes for HTML. Its arguments can always be encoded.
func encode(v any) json.RawMessage {
	raw, _ := journal.EncodeJSON(v)
	return raw
}

// The roles of agents. A role begins the ID of its call.
const (
	roleAsked       = "ask"
	roleProposer    = "proposer"
	roleCritic      = "critic"
	roleSynthesizer = "synthesizer"
	roleJudge       = "judge"
)

// callID returns the ID of a question. In a session, and if failed agents are asked again, it includes a
// position, so that it differs from those of earlier runs.
func (p *Plan) callID(role string, n int) string {
	id := role + "_" + strconv.Itoa(n)
	if at := cmp.Or(p.Again, p.From); at > 0 {
		id += "_" + strconv.Itoa(at)
	}
	return id
}

func roleOf(callID string) string {
	role, _, _ := strings.Cut(callID, "_")
	return role
}

// toolsOf returns the tools of a worker. It never returns nil, which would be no restriction. The
// synthesizer has no tools (X13).
func (p *Plan) toolsOf(role string) []string {
	if role == roleSynthesizer || len(p.Tools) == 0 {
		return []string{}
	}
	return p.Tools
}

// question is a question to be asked.
type question struct {
	role        string
	n           int
	agent, task string
}

// reply is the outcome of a question.
type reply struct {
	role, agent string
	text        string // the answer without its fence, or the error of the tool
	fenced      string // the answer as other agents read it
	failed      bool
	old         bool // is from the run whose failed agents are asked again
}

// failure is the result of a call without an answer, or of one that was refused.
type failure struct {
	Error      string              `json:"error"`
	Message    string              `json:"message"`
	StopReason toolcrib.StopReason `json:"stop_reason"`
	Reason     toolcrib.Reason     `json:"reason"`
}

func (r *reply) failure() (f failure) {
	_ = json.Unmarshal([]byte(r.text), &f) // written by the loop
	return f
}

// why returns the reason why there is no answer.
func (r *reply) why() string {
	f := r.failure()
	return cmp.Or(f.Error, f.Message, "no answer")
}

// cancelled reports whether the agent was not waited for.
func (r *reply) cancelled() bool { return r.failed && r.why() == "cancelled" }

// cutShort returns the budget or time limit because of which the last stage lacks answers, if any. all
// are the replies of that stage.
func (p *Plan) cutShort(messages []toolcrib.Message) (why toolcrib.StopReason, all []reply) {
	all, _ = p.replies(messages[1:])
	stage := all
	if p.Kind == Coordinate && len(all) > 0 { // an earlier one may have answered instead
		stage = all[len(all)-1:]
	}
	for i := range stage {
		f := stage[i].failure()
		switch {
		case !stage[i].failed:
		case f.StopReason == toolcrib.StopBudgetExhausted, f.Reason == toolcrib.ReasonBudgetExhausted:
			return toolcrib.StopBudgetExhausted, all
		case f.StopReason == toolcrib.StopWallTime:
			return toolcrib.StopWallTime, all
		}
	}
	return "", all
}

// replies parses the questions and answers so far. open reports whether a question has no result,
// which cannot be in a transcript that is sent.
func (p *Plan) replies(messages []toolcrib.Message) (all []reply, open bool) {
	at := map[string]int{}
	for i := range messages {
		for j := range messages[i].Parts {
			switch part := &messages[i].Parts[j]; {
			case part.ToolCall != nil && part.ToolCall.Name == spawnTool:
				var asked struct {
					Agent string `json:"agent"`
				}
				_ = json.Unmarshal(part.ToolCall.Arguments, &asked) // written by the conductor
				at[part.ToolCall.ID] = len(all)
				all = append(all, reply{role: roleOf(part.ToolCall.ID), agent: asked.Agent})
			case part.ToolResult != nil:
				if n, ok := at[part.ToolResult.CallID]; ok {
					all[n].take(part.ToolResult, p.Canary)
					all[n].old = p.From+1+i < p.Again
					delete(at, part.ToolResult.CallID)
				}
			}
		}
	}
	// A synthesis is written again after answers that it lacked.
	lacked := slices.ContainsFunc(all, func(r reply) bool { return r.old && r.failed && r.role == roleCritic })
	all = slices.DeleteFunc(all, func(r reply) bool { return r.old && (r.failed || lacked && r.role == roleSynthesizer) })
	if p.Kind != Coordinate {
		slices.SortStableFunc(all, func(a, b reply) int {
			return cmp.Compare(slices.Index(p.Agents, a.agent), slices.Index(p.Agents, b.agent))
		})
	}
	return all, len(at) > 0
}

func (r *reply) take(result *toolcrib.ToolResult, canary string) {
	r.failed, r.text, r.fenced = result.IsError, result.Content, result.Content
	if inside, ok := guard.Unfence(result.Content); ok {
		r.text = guard.WithoutCanary(inside) // the canary of the conductor's own run
		r.fenced = guard.CanaryLine(canary) + r.text
	}
	// The next reader sees whose answer it is, and no answer can pass for another agent's.
	r.fenced = guard.WrapUntrusted("agent "+r.agent, r.fenced)
}

// next returns what follows these messages: questions, or the answer of the run. messages begin with
// the question.
func (p *Plan) next(messages []toolcrib.Message) (ask []question, answer string, err error) {
	base := messages[0].Text()
	all, open := p.replies(messages[1:])
	if open {
		return nil, "", fmt.Errorf("a question has no result")
	}
	if p.Kind == Coordinate {
		return p.coordinate(base, all)
	}
	role := roleAsked
	if p.Kind == Assess {
		role, base = roleJudge, judgeTask(base, p.Rubric)
	}
	if ask := p.askRest(role, p.Agents, all, base); len(ask) > 0 {
		return ask, "", nil
	}
	if answered(all) == 0 {
		return nil, "", noAnswer(all)
	}
	if p.Kind == Assess {
		return nil, string(encode(p.assessment(all, subjectIn(messages[0].Text())))), nil
	}
	return nil, p.conferred(all), nil
}

// askRest returns the question to the agents that have not been asked in a role.
func (p *Plan) askRest(role string, agents []string, asked []reply, task string) (rest []question) {
	for i, name := range agents {
		if !slices.ContainsFunc(asked, func(r reply) bool { return r.role == role && r.agent == name }) {
			rest = append(rest, question{role: role, n: i + 1, agent: name, task: task})
		}
	}
	return rest
}

func answered(all []reply) (n int) {
	for i := range all {
		if !all[i].failed {
			n++
		}
	}
	return n
}

// noAnswer returns the error of a team without any answer, with the reasons.
func noAnswer(all []reply) error {
	var b strings.Builder
	for i := range all {
		fmt.Fprintf(&b, "; %s: %s", all[i].agent, all[i].why())
	}
	return fmt.Errorf("no agent answered%s", guard.Clip(b.String(), 2000))
}

// conferred returns the answer of a confer in the form for people.
func (p *Plan) conferred(all []reply) string {
	var b strings.Builder
	for i := range all {
		r := &all[i]
		if i > 0 {
			b.WriteString("\n\n")
		}
		fmt.Fprintf(&b, "## %s\n\n", r.agent)
		vote, voted := ballotOf(r.text)
		switch {
		case r.cancelled() && p.StopAt > 0:
			b.WriteString("(was not waited for: enough agents agree)")
		case r.cancelled():
			b.WriteString("(was not waited for)")
		case r.failed:
			b.WriteString("(no answer: " + r.why() + ")")
		case p.Ballot && voted:
			fmt.Fprintf(&b, "%s: %s", vote.Ballot, strings.TrimSpace(vote.Answer))
		default:
			b.WriteString(strings.TrimSpace(r.text))
		}
	}
	return b.String()
}

// vote is an answer with a ballot, or the answer in a role.
type vote struct {
	Answer    string   `json:"answer"`
	Ballot    string   `json:"ballot"`
	Citations []string `json:"citations"`
}

func ballotOf(text string) (v vote, ok bool) {
	err := json.Unmarshal([]byte(text), &v)
	return v, err == nil && v.Ballot != ""
}

// enough reports whether a confer needs no further answer (see [Request.StopAt]), or whether a team has
// some for a person who is content with them.
func enough(s *agent.State, results []*journal.ToolResult, hurried bool) bool {
	p := PlanOf(s.Start)
	if p != nil && hurried {
		switch roleOf(s.Turn.Calls[0].ID) {
		case roleAsked, roleJudge:
			return slices.ContainsFunc(results, func(r *journal.ToolResult) bool { return r != nil && !r.IsError })
		}
		return roleOf(s.Turn.Calls[0].ID) != roleProposer // else there is a proposal
	}
	if p == nil || p.StopAt <= 0 {
		return false
	}
	need := int(math.Ceil(p.StopAt*float64(len(p.Agents)) - 1e-9))
	count, missing := map[string]int{}, false
	for _, result := range results {
		if result == nil {
			missing = true
			continue
		}
		r := reply{}
		r.take(&toolcrib.ToolResult{Content: result.Content, IsError: result.IsError}, "")
		if v, ok := ballotOf(r.text); ok && !r.failed {
			count[v.Ballot]++
		}
	}
	for _, n := range count {
		if n >= max(need, 1) {
			return missing
		}
	}
	return false
}

// maxTries bounds how many agents are asked in turn, after failures, for the proposal or for the synthesis.
const maxTries = 3

// coordinate is next for a coordinate: a proposal, concurrent critics, a synthesis.
func (p *Plan) coordinate(base string, all []reply) ([]question, string, error) {
	var proposal *reply
	var critiques, tried []reply
	for i := range all {
		switch r := &all[i]; {
		case r.role == roleProposer && !r.failed:
			proposal = r
		case r.role == roleCritic:
			critiques = append(critiques, *r)
		case r.role == roleSynthesizer && !r.failed:
			return nil, r.text, nil
		case r.role == roleSynthesizer:
			tried = append(tried, *r)
		}
	}
	switch {
	case proposal == nil:
		name := p.nextTry(p.Proposer, all)
		if name == "" {
			return nil, "", noAnswer(all)
		}
		return []question{{roleProposer, len(all) + 1, name, base + "\n\n" + proposerTask}}, "", nil
	}
	task := base + "\n\n" + criticTask + "\n\n" + proposal.fenced
	if ask := p.askRest(roleCritic, p.critics(proposal.agent), all, task); len(ask) > 0 {
		return ask, "", nil
	}
	if !slices.ContainsFunc(critiques, func(r reply) bool { return !r.cancelled() }) {
		return nil, unsynthesized(proposal, critiques, nil), nil
	}
	name := p.nextTry(p.Synthesizer, tried)
	switch {
	case name == "" && len(tried) == 0:
		return nil, "", errors.New("the plan names nobody who puts the answers together")
	case name == "":
		return nil, unsynthesized(proposal, critiques, tried), nil
	}
	return []question{{roleSynthesizer, len(tried) + 1, name, synthesisTask(base, proposal, critiques)}}, "", nil
}

// nextTry returns the agent to ask next: the first choice, then the other agents in their order. It
// returns "" when enough have been tried.
func (p *Plan) nextTry(first string, tried []reply) string {
	if len(tried) == 0 {
		return first
	}
	if len(tried) >= maxTries || slices.ContainsFunc(tried, func(r reply) bool { return r.cancelled() }) {
		return ""
	}
	was := map[string]bool{}
	for i := range tried {
		was[tried[i].agent] = true
	}
	for _, name := range p.Agents {
		if !was[name] {
			return name
		}
	}
	return ""
}

// unsynthesized returns the answer of a coordinate whose synthesis failed.
func unsynthesized(proposal *reply, critiques, tried []reply) string {
	var b strings.Builder
	b.WriteString("There is no synthesis")
	for i := range tried {
		fmt.Fprintf(&b, "%s%s: %s", map[bool]string{true: "; ", false: " ("}[i > 0], tried[i].agent, tried[i].why())
	}
	if len(tried) > 0 {
		b.WriteString(")")
	}
	fmt.Fprintf(&b, ".\n\n## Proposal of %s\n\n%s", proposal.agent, Summary(proposal.text))
	for i := range critiques {
		c := &critiques[i]
		text := Summary(c.text)
		if v, ok := ballotOf(c.text); c.failed {
			text = "(failed: " + c.why() + ")"
		} else if ok {
			text = v.Ballot + ": " + text
		}
		fmt.Fprintf(&b, "\n\n## Critique of %s\n\n%s", c.agent, text)
	}
	return b.String()
}
