package ui

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/store"
)

// playgroundRoutes returns the routes of the playground, of sessions and of comparisons.
func playgroundRoutes() []Route {
	return []Route{
		{Pattern: "GET /{$}", do: showPlayground},
		{Pattern: "POST /{$}", do: startRun},
		{Pattern: "GET /sessions", do: listSessions},
		{Pattern: "GET /compare", do: compareRuns},
		{Pattern: "POST /compare", do: startCompared},
		{Pattern: "POST /compare/again", do: runAgain},
	}
}

// choice has the settings of the next run. All but the prompt and its files is in the address of the page.
type choice struct {
	Agent, Model, Session string
	ReadOnly              bool
	Skills                []string
	Off                   []string // tools that the agent offers and the run does not
	With                  []string // models that answer side by side
	Prompt                string
	Offered               []string // tools that the form offered
	Files                 []service.Attachment
	Once                  string
}

// choiceOf reads the fields of a form or an address.
func choiceOf(v url.Values) choice {
	c := choice{
		Agent: v.Get("agent"), Model: v.Get("model"), Session: v.Get("session"), ReadOnly: v.Get("readonly") != "",
		Skills: v["skill"], Off: v["off"], With: v["with"], Prompt: strings.ReplaceAll(v.Get("prompt"), "\r\n", "\n"),
		Offered: v["offered"], Once: v.Get("once"),
	}
	for _, name := range c.Offered {
		if !slices.Contains(v["tool"], name) && !slices.Contains(c.Off, name) {
			c.Off = append(c.Off, name)
		}
	}
	return c
}

// address returns the address of the playground with the choice.
func (c choice) address() string {
	v := url.Values{"skill": c.Skills, "off": c.Off}
	for name, value := range map[string]string{"agent": c.Agent, "model": c.Model, "session": c.Session} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if c.ReadOnly {
		v.Set("readonly", "yes")
	}
	if query := v.Encode(); query != "" {
		return "/?" + query
	}
	return "/"
}

// request returns the request for a run.
func (c choice) request(p *page) (r service.StartRequest, err error) {
	r = service.StartRequest{
		Agent: c.Agent, Session: c.Session, Begins: c.Session == "", Prompt: c.Prompt, Files: c.Files,
		Change: policy.Change{Model: c.Model, Skills: c.Skills, ReadOnly: c.ReadOnly},
		Notice: func(text string) {
			p.Log.Info(p.Service.Env.Mask.Mask(text), "request_id", p.ID, "user", p.Who.User)
		},
	}
	if strings.TrimSpace(c.Prompt) == "" && len(c.Files) == 0 {
		return r, bad("the prompt is empty")
	}
	if len(c.Off) > 0 {
		r.Tools = []string{}
		for _, name := range c.Offered {
			if !slices.Contains(c.Off, name) {
				r.Tools = append(r.Tools, name)
			}
		}
	}
	r.Workspace, err = p.Service.Policy.OwnWorkspace(p.Who)
	asked := []string{"/", c.address(), c.Prompt, strings.Join(r.Tools, " ")}
	for _, f := range c.Files {
		asked = append(asked, f.Name, string(f.Data))
	}
	r.Once = service.Once(p.Who, c.Once, asked...)
	return r, err
}

// maxFormMemory is how much of a form is kept in memory; the rest is in temporary files while the form is read.
const maxFormMemory = 4 << 20

// formChoice reads the form of the playground. With an error it returns the fields read so far.
func (p *page) formChoice() (c choice, err error) {
	err = p.R.ParseMultipartForm(maxFormMemory)
	if errors.Is(err, http.ErrNotMultipart) {
		err = nil
	}
	c = choiceOf(p.R.PostForm)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return c, toolcrib.Errorf(toolcrib.CodeTooLarge, "%s",
			p.texts.text(p.language, "playground.too_large", bytesText(p.language, large.Limit)))
	case err != nil:
		return c, bad("the form cannot be read")
	}
	if p.R.MultipartForm == nil {
		return c, nil
	}
	defer p.R.MultipartForm.RemoveAll() //nolint:errcheck // the system removes temporary files
	for _, head := range p.R.MultipartForm.File["file"] {
		f, err := head.Open()
		if err != nil {
			return c, err
		}
		data, err := io.ReadAll(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return c, err
		}
		if head.Filename == "" { // nothing was chosen
			continue
		}
		file, err := service.Attachments([]api.File{{Name: head.Filename, Data: data}})
		if err != nil {
			return c, bad("%s", p.texts.text(p.language, "playground.refused_file", head.Filename,
				bytesText(p.language, toolcrib.MaxFileBytes)))
		}
		c.Files = append(c.Files, file...)
	}
	if len(c.Files) > service.MaxAttachments {
		return c, bad("%s", p.texts.text(p.language, "playground.too_many_files", service.MaxAttachments))
	}
	return c, nil
}

// bytesText returns a number of bytes with a unit.
func bytesText(language string, n int64) string {
	if n < 1<<20 {
		return number(language, n>>10) + " KB"
	}
	return decimal(language, fmt.Sprintf("%.1f", float64(n)/(1<<20))) + " MB"
}

// startRun starts a run, and leads to its session.
func startRun(p *page) error {
	c, err := p.formChoice()
	if err == nil {
		var run service.Run
		if run, err = p.begin(c); err == nil {
			c.Session = cmp.Or(string(run.SessionID), c.Session)
			return p.done(c.address())
		}
	}
	return p.playgroundAgain(c, err)
}

func (p *page) begin(c choice) (run service.Run, err error) {
	r, err := c.request(p)
	if err != nil {
		return run, err
	}
	drive, err := p.Pool.Start(context.WithoutCancel(p), p.Who, r)
	if err != nil {
		return run, err
	}
	return p.Service.FindRun(p, p.Who, string(drive.ID()))
}

// playgroundAgain shows the page with an error and the input. A module shows the error in its form.
func (p *page) playgroundAgain(c choice, err error) error {
	if p.enhanced() {
		return err
	}
	e := p.Readable(p.Request, err)
	if statusOf(e.Code) == http.StatusUnauthorized {
		return err
	}
	v, view := p.playground(c)
	if view != nil {
		return err
	}
	v.Problem = &failure{
		Status: statusOf(e.Code), Code: e.Code, Message: e.Message, RequestID: p.ID, Ref: e.Ref, Retry: e.RetryAfter,
	}
	return p.render("playground", v.Problem.Status, v)
}

// playgroundView is the data of the template playground.
type playgroundView struct {
	Choice   choice
	Agents   []policy.Agent
	Models   []api.Model
	Skills   []skillChoice
	Tools    []toolChoice // that the agent offers
	Without  []toolChoice // other tools, with the reason
	Notices  []toolcrib.Notice
	Model    api.Model // that answers
	Session  *store.SessionInfo
	Sessions []store.SessionInfo
	Turns    []service.Run // of the session, without the last one
	More     bool          // the session has earlier ones
	Head     *runHead      // of the last run
	Story    *story
	Others   []api.Model // with which the last run can be repeated
	Problem  *failure
	MaxFile  int64
	MaxForm  int64
}

type toolChoice struct {
	gate.Explanation
	On bool
}

type skillChoice struct {
	policy.Skill
	On bool
}

// Offline reports whether the model that answers is only a few rules.
func (v *playgroundView) Offline() bool { return v.Model.Type == "offline" }

// Busy reports whether the last run of the session has not ended, so that no other one can start in it.
func (v *playgroundView) Busy() bool { return v.Head != nil && v.Head.Stops }

func showPlayground(p *page) error {
	v, err := p.playground(choiceOf(p.R.URL.Query()))
	if err != nil {
		return err
	}
	if p.enhanced() {
		return p.part("playground", "choices", http.StatusOK, v)
	}
	return p.render("playground", http.StatusOK, v)
}

// playground returns the data of the page for a choice.
func (p *page) playground(c choice) (v *playgroundView, err error) {
	v = &playgroundView{
		Choice: c, MaxFile: toolcrib.MaxFileBytes, MaxForm: p.Service.Env.Config.Server.MaxBodyBytes,
	}
	if v.Agents, err = p.Service.Policy.Agents(p, p.Who); err != nil {
		return v, err
	}
	if i := slices.IndexFunc(v.Agents, func(a policy.Agent) bool { return a.Name == "default" }); c.Agent == "" &&
		len(v.Agents) > 0 {
		v.Choice.Agent = v.Agents[max(i, 0)].Name
	}
	if v.Models, err = p.Service.Models.List(p.Who, "", true); err != nil {
		return v, err
	}
	skills, err := p.Service.Policy.Skills(nil)
	if err != nil {
		return v, err
	}
	for _, k := range skills.All {
		v.Skills = append(v.Skills, skillChoice{k, slices.Contains(c.Skills, k.Name)})
	}
	if len(v.Agents) > 0 {
		if err := v.explain(p); err != nil {
			return v, err
		}
	}
	page, err := p.Service.Sessions(p, p.Who, store.SessionFilter{User: p.Who.User, Limit: sessionsInForm})
	if err != nil {
		return v, err
	}
	v.Sessions = page.Sessions
	if c.Session != "" {
		err = v.conversation(p)
	}
	return v, err
}

// sessionsInForm is how many sessions a run can be added to in the form. The list of sessions has the others.
const sessionsInForm = 30

// explain adds the tools of the agent and the model that answers.
func (v *playgroundView) explain(p *page) error {
	c := v.Choice
	workspace, err := p.Service.Policy.OwnWorkspace(p.Who)
	if err != nil {
		return err
	}
	change := policy.Change{Model: c.Model, Skills: c.Skills, ReadOnly: c.ReadOnly}
	found, err := p.Service.Policy.Explain(p, p.Who, policy.ExplainRequest{
		Agent: c.Agent, Change: change, Workspace: workspace, Notice: func(string) {}, // Notices has them
	})
	if err != nil {
		return err
	}
	v.Notices = found.Notices
	for _, t := range found.Tools {
		one := toolChoice{t, t.Offered && !slices.Contains(c.Off, t.Tool)}
		if t.Offered {
			v.Tools = append(v.Tools, one)
		} else {
			v.Without = append(v.Without, one)
		}
	}
	def, err := p.Service.Policy.Agent(c.Agent, change)
	if err != nil {
		return err
	}
	for _, m := range v.Models {
		if def.Model == "" && m.Detected != "" || m.Name == def.Model || m.Provider+"/"+m.Model == def.Model {
			v.Model = m
			break
		}
	}
	return nil
}

// On returns the number of tools that the run may use.
func (v *playgroundView) On() (n int) {
	for _, t := range v.Tools {
		if t.On {
			n++
		}
	}
	return n
}

// turns bounds the runs of a session on the page.
const turns = 20

// conversation adds the runs of the session.
func (v *playgroundView) conversation(p *page) error {
	info, err := p.Service.Session(p, p.Who, v.Choice.Session)
	if toolcrib.CodeOf(err) == toolcrib.CodeNotFound && v.Choice.Prompt != "" {
		return nil // the error about the prompt says so
	}
	if err != nil {
		return err
	}
	v.Session, v.Choice.Session = &info, string(info.ID)
	if !slices.ContainsFunc(v.Sessions, func(s store.SessionInfo) bool { return s.ID == info.ID }) {
		v.Sessions = append(v.Sessions, info)
	}
	runs, next, err := p.Service.Runs(p, p.Who, service.RunsQuery{
		Filter: store.Filter{Session: info.ID, TopLevel: true, Limit: turns}, Prompts: true,
	})
	if err != nil || len(runs) == 0 {
		return err
	}
	slices.Reverse(runs)
	last := len(runs) - 1
	v.Turns, v.More = runs[:last], next != ""
	run, err := p.Service.FindRun(p, p.Who, string(runs[last].ID))
	if err != nil {
		return err
	}
	head := headOf(run)
	v.Head = &head
	for _, m := range v.Models {
		if m.Name != run.Model && m.Provider+"/"+m.Model != run.Model {
			v.Others = append(v.Others, m)
		}
	}
	if run.PrunedAt == nil {
		v.Story, err = p.storyOf(run, 0)
	}
	return err
}
