package ui

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/policy"
)

// Limits of a question that the page explain answers.
const (
	maxArguments = 64 << 10 // bytes; longer ones belong to a run
	explainRows  = 50       // tools on a page
)

// explainView is the data of the template explain.
type explainView struct {
	Agent, User, Tool, Arguments string
	Skills                       []string // chosen
	ReadOnly                     bool
	Run, Call                    string
	Answer                       policy.Explained
	Agents                       []policy.Agent
	AllSkills                    []string
	Layers                       []toolcrib.Reason
	Error                        string

	Past *api.TraceCall // the call of the run
	Rows []explainRow
	From int
	Fit  int
	Text string // in the name of a tool

	Before, After string
}

// explainRow is a tool with the answers of the layers.
type explainRow struct {
	gate.Explanation
	Link  string
	Cells []bool // whether each of the layers that all tools have lets it pass
}

// First returns the number of the first tool shown, and Last that of the last.
func (v *explainView) First() int { return min(v.From+1, v.Fit) }

// Last returns the number of the last tool shown.
func (v *explainView) Last() int { return v.From + len(v.Rows) }

// One returns the explanation of the only tool.
func (v *explainView) One() *gate.Explanation { return &v.Answer.Tools[0] }

// Decides returns the first layer that refuses, or "".
func (v *explainView) Decides() toolcrib.Reason {
	for _, l := range v.One().Layers {
		if !l.Allowed {
			return l.Layer
		}
	}
	return ""
}

// DecidingRule returns the rule that decides about the call, or "-" if none does.
func (v *explainView) DecidingRule() string {
	if v.Answer.Call == nil || v.Answer.Call.Verdict.Rule == "" {
		return "-" // no name of a rule
	}
	return v.Answer.Call.Verdict.Rule
}

// address returns the address of a question about a tool, or about all.
func (v *explainView) address(tool string, from int) string {
	q := url.Values{}
	for name, value := range map[string]string{"agent": v.Agent, "user": v.User, "run": v.Run, "tool": tool} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if v.Text != "" && tool == "" {
		q.Set("q", v.Text)
	}
	if len(v.Skills) > 0 {
		q["skill"] = v.Skills
	}
	if v.ReadOnly {
		q.Set("read_only", "on")
	}
	if from > 0 {
		q.Set("from", strconv.Itoa(from))
	}
	return "/explain?" + q.Encode()
}

// explain shows the answers of the layers of the gate about tools, or about a call.
func explain(p *page) error {
	q := p.R.URL.Query()
	from, _ := strconv.Atoi(q.Get("from")) // anything else is the beginning
	v := &explainView{
		Agent: q.Get("agent"), User: strings.TrimSpace(q.Get("user")), Tool: strings.TrimSpace(q.Get("tool")),
		Arguments: q.Get("arguments"), ReadOnly: q.Get("read_only") == "on", Run: q.Get("run"), Call: q.Get("call"),
		From: max(from, 0), Text: strings.TrimSpace(q.Get("q")),
	}
	v.Skills = slices.DeleteFunc(q["skill"], func(name string) bool { return name == "" })
	if err := v.choices(p); err != nil {
		return err
	}
	status := http.StatusOK
	if err := v.ask(p); err != nil {
		e := p.Readable(p.Request, err)
		if status = statusOf(e.Code); v.Run != "" || status == http.StatusInternalServerError {
			return err
		}
		v.Error = e.Message // beside the form, where it can be put right
	}
	return p.render("explain", status, v)
}

// choices adds the agents and skills that may be chosen.
func (v *explainView) choices(p *page) (err error) {
	if v.Agents, err = p.Service.Policy.Agents(p, p.Who); err != nil {
		return err
	}
	skills, err := p.Service.Policy.Skills(nil)
	if err != nil {
		return err
	}
	for _, k := range skills.All {
		v.AllSkills = append(v.AllSkills, k.Name)
	}
	return nil
}

// ask has the gate explain.
func (v *explainView) ask(p *page) error {
	who := p.Who
	if v.User != "" && v.User != who.User {
		by, err := env.Administrator(who)
		if err == nil {
			who, err = p.Service.People.ActFor(p, by, v.User)
		}
		if err != nil {
			return err
		}
	}
	q := policy.ExplainRequest{
		Run: v.Run, Agent: v.Agent, Change: policy.Change{Skills: v.Skills, ReadOnly: v.ReadOnly},
		Notice: func(string) {}, // the answer has them
	}
	var err error
	if v.Run == "" {
		if q.Workspace, err = p.Service.Policy.OwnWorkspace(who); err != nil {
			return err
		}
	} else if err := v.past(p); err != nil {
		return err
	}
	q.Tool = v.Tool
	switch {
	case len(v.Arguments) > maxArguments && v.Past == nil:
		return bad("the arguments have more than %d bytes", maxArguments)
	case v.Arguments != "" && v.Tool != "":
		q.Given = p.Service.Policy.GivenCall(v.Tool, []byte(v.Arguments))
	}
	if v.Answer, err = p.Service.Policy.Explain(p, who, q); err == nil && v.Tool == "" {
		v.rows()
	}
	return err
}

// past takes the tool and the arguments from a call of the run.
func (v *explainView) past(p *page) error {
	run, err := p.Service.Run(p, p.Who, v.Run)
	if err != nil {
		return err
	}
	v.Run, v.Agent, v.User = string(run.ID), run.Agent, run.User
	if v.Call == "" {
		return nil
	}
	i := slices.IndexFunc(run.Trace, func(t api.TraceCall) bool { return t.ID == v.Call })
	if i < 0 {
		return toolcrib.Errorf(toolcrib.CodeNotFound, "the run has no call %s", strconv.Quote(v.Call))
	}
	v.Past = &run.Trace[i]
	v.Tool, v.Arguments = v.Past.Name, string(v.Past.Arguments)
	return nil
}

// rows selects the tools that the page shows.
func (v *explainView) rows() {
	tools := slices.Clone(v.Answer.Tools)
	for i, x := range tools { // the tool that finds others has one more
		if i == 0 || len(x.Layers) < len(v.Layers) {
			v.Layers = v.Layers[:0]
			for _, l := range x.Layers {
				v.Layers = append(v.Layers, l.Layer)
			}
		}
	}
	text := strings.ToLower(v.Text)
	tools = slices.DeleteFunc(tools, func(x gate.Explanation) bool {
		return !strings.Contains(strings.ToLower(x.Tool+" "+x.Source+" "+x.Group), text)
	})
	v.Fit = len(tools)
	if v.From >= v.Fit {
		v.From = 0
	}
	last := min(v.From+explainRows, v.Fit)
	for _, x := range tools[v.From:last] {
		row := explainRow{Explanation: x, Link: v.address(x.Tool, 0)}
		for _, name := range v.Layers {
			row.Cells = append(row.Cells, !slices.ContainsFunc(x.Layers, func(l gate.LayerAnswer) bool {
				return l.Layer == name && !l.Allowed
			}))
		}
		v.Rows = append(v.Rows, row)
	}
	if v.From > 0 {
		v.Before = v.address("", max(v.From-explainRows, 0))
	}
	if last < v.Fit {
		v.After = v.address("", last)
	}
}
