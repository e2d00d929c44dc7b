package ui

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// runRoutes returns the routes of runs.
func runRoutes() []Route {
	return []Route{
		{Pattern: "GET /runs", do: listRuns},
		{Pattern: "GET /runs/{id}", do: showRun},
		{Pattern: "GET /runs/{id}/live", do: followRun},
		{Pattern: "GET /runs/{id}/events/{seq}", do: showEvent},
		{Pattern: "GET /runs/{id}/events/{seq}/result", do: showResult},
		{Pattern: "GET /runs/{id}/export", do: exportRun},
		{Pattern: "GET /runs/{id}/verify", do: checkRun("verify")},
		{Pattern: "GET /runs/{id}/replay", do: checkRun("replay")},
		{Pattern: "POST /runs/{id}/cancel", do: cancelRun},
		{Pattern: "POST /runs/{id}/message", do: sayToRun},
		{Pattern: "POST /runs/{id}/resume", do: resumeRun},
		{Pattern: "POST /runs/{id}/fork", do: forkRun},
	}
}

// runsPage is the data of the list of runs.
type runsPage struct {
	Runs     []runHead
	Next     string // address of the next page, or ""
	Filter   url.Values
	Filtered bool
	Statuses []string
	Agents   []string
	Admin    bool
	Live     bool   // some runs have not ended
	Address  string // of this page
}

// runFilters are the parameters of the address of the list.
var runFilters = []string{"id", "status", "user", "agent", "session", "parent", "since"}

const runsPerPage = 30

func listRuns(p *page) error {
	if err := p.R.ParseForm(); err != nil {
		return bad("the query cannot be read")
	}
	d := runsPage{Filter: url.Values{}, Statuses: service.StatusNames(), Address: p.R.URL.RequestURI()}
	for _, name := range runFilters {
		if text := strings.TrimSpace(p.R.Form.Get(name)); text != "" {
			d.Filter.Set(name, text)
			d.Filtered = true
		}
	}
	_, err := env.Administrator(p.Who)
	d.Admin = err == nil
	agents, err := p.Service.Policy.Agents(p, p.Who)
	if err != nil {
		return err
	}
	for _, a := range agents {
		d.Agents = append(d.Agents, a.Name)
	}
	runs, next, err := p.runs(d.Filter)
	if err != nil {
		return err
	}
	for _, run := range runs {
		h := headOf(run)
		d.Live = d.Live || !run.Status.Ended()
		d.Runs = append(d.Runs, h)
	}
	if next != "" {
		more := url.Values{"cursor": {next}}
		for name, v := range d.Filter {
			more[name] = v
		}
		d.Next = "/runs?" + more.Encode()
	}
	if p.enhanced() {
		return p.part("runs", "runs-list", http.StatusOK, d)
	}
	return p.render("runs", http.StatusOK, d)
}

// runs returns the runs that a filter chooses. A search by ID finds one or none.
func (p *page) runs(f url.Values) ([]service.Run, string, error) {
	if id := f.Get("id"); id != "" {
		run, err := p.Service.FindRun(p, p.Who, id)
		if toolcrib.CodeOf(err) == toolcrib.CodeNotFound {
			return nil, "", nil
		}
		return []service.Run{run}, "", err
	}
	q := service.RunsQuery{
		Filter: store.Filter{
			User: f.Get("user"), Agent: f.Get("agent"), Session: toolcrib.SessionID(f.Get("session")),
			Parent: toolcrib.RunID(f.Get("parent")), TopLevel: f.Get("parent") == "", Limit: runsPerPage,
			Cursor: p.R.Form.Get("cursor"),
		},
		Prompts: true,
	}
	if f.Get("status") != "" {
		q.Statuses = []string{f.Get("status")}
	}
	if since := f.Get("since"); since != "" {
		at, err := time.Parse(time.DateOnly, since)
		if err != nil {
			return nil, "", bad("since: must be a day such as 2026-01-31")
		}
		q.Since = at
	}
	return p.Service.Runs(p, p.Who, q)
}

// once returns the key of the form that begins something, so that it begins once.
func (p *page) once() string {
	return service.Once(p.Who, p.R.PostFormValue("once"), p.R.URL.Path, p.R.PostForm.Encode())
}

// staying returns the context of work that continues after the browser disconnects.
func (p *page) staying() context.Context { return context.WithoutCancel(p) }
