package ui

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
)

// runPage is the data of the page of a run.
type runPage struct {
	Head       runHead
	Title      string
	Prompt     string
	ForkedFrom toolcrib.RunID
	Round      int // before which it was forked
	Children   []service.Run
	More       bool // it has more children
	View       string
	Story      *story
	Timeline   *timeline
	Tools      runTools
}

// runTools is the part of the page with the forms of the run.
type runTools struct {
	runHead
	Once   string
	Rounds int
	Models []string
	Round  string // to fork before
}

// toolsOf returns the forms of a run.
func (p *page) toolsOf(h runHead) (runTools, error) {
	tools := runTools{runHead: h, Once: rand.Text(), Rounds: h.Iterations, Round: p.R.FormValue("round")}
	if !h.Continue {
		return tools, nil
	}
	models, err := p.Service.Models.List(p.Who, "", true)
	for _, m := range models {
		tools.Models = append(tools.Models, m.Name)
	}
	return tools, err
}

// runHead is the part of the page that changes with the state of the run.
type runHead struct {
	service.Run
	Shown    string // status
	Took     time.Duration
	Parked   bool
	Stops    bool // it can be cancelled
	Continue bool // it can be resumed
	Decides  bool // it waits for a decision on an approval of its own
}

func headOf(run service.Run) runHead {
	h := runHead{Run: run, Shown: status(&run), Parked: run.Status.Parked(), Stops: !run.Status.Ended()}
	end := time.Now()
	if run.EndedAt != nil {
		end = *run.EndedAt
	}
	h.Took = end.Sub(run.CreatedAt)
	h.Decides = run.Pending != nil && run.Pending.ApprovalID != ""
	// A run that has ended without an answer is continued by a fork; the service decides.
	h.Continue = h.Parked || run.Interrupted || run.Status == toolcrib.StatusFailed ||
		run.Status == toolcrib.StatusCompleted && run.StopReason != toolcrib.StopCompleted
	return h
}

// maxChildren bounds the runs below that the head of a page lists.
const maxChildren = 20

func showRun(p *page) error {
	id := p.R.PathValue("id")
	run, err := p.Service.FindRun(p, p.Who, id)
	if err != nil {
		return err
	}
	if string(run.ID) != id {
		return p.done("/runs/" + string(run.ID))
	}
	d := runPage{Head: headOf(run), View: p.R.FormValue("view")}
	before, err := seqOf(p.R.FormValue("before"))
	if err != nil {
		return bad("before: must be the number of an event")
	}
	if run.PrunedAt == nil {
		if err := p.fill(&d, run, before); err != nil {
			return err
		}
	}
	d.Title = cmp.Or(service.OneLine(guard.Clip(d.Prompt, 1000), 90), string(run.ID))
	return p.render("run", http.StatusOK, d)
}

// fill adds the content of the journal of the run.
func (p *page) fill(d *runPage, run service.Run, before toolcrib.Seq) (err error) {
	for e, err := range p.Service.JournalAfter(p, p.Who, run.ID, 0) {
		if err != nil {
			return err
		}
		if b, ok := e.Body.(*journal.RunStarted); ok {
			d.ForkedFrom, d.Round = b.ForkedFrom, b.ForkedRound
			if n := len(b.Input); n > 0 {
				d.Prompt = b.Input[n-1].Text()
			} else if b.Given != nil {
				d.Prompt = b.Given.Name
			}
		}
		break
	}
	q := service.RunsQuery{Filter: store.Filter{Parent: run.ID, Limit: maxChildren}}
	below, next, err := p.Service.Runs(p, p.Who, q)
	if err != nil {
		return err
	}
	d.Children, d.More = below, next != ""
	if d.Tools, err = p.toolsOf(d.Head); err != nil {
		return err
	}
	if d.Story, err = p.storyOf(run, before); err == nil && d.View == "timeline" {
		d.Timeline, err = p.timelineOf(run, d.Story)
	}
	return err
}

// eventPage is the data of the page of an event.
type eventPage struct {
	Run      toolcrib.RunID
	Seq      toolcrib.Seq
	Previous toolcrib.Seq
	At       time.Time
	Kind     toolcrib.Kind
	JSON     string
	Hash     string
	// For a request to a model: its input.
	System   string
	Messages []toolcrib.Message
	More     int // earlier messages that are left out
	Tools    []string
	Request  *journal.ModelRequest
	Model    string
	Verdicts []journal.Verdict
	Result   *journal.ToolResult
}

// Bounds of the page of an event.
const (
	maxEventJSON     = 256 << 10
	maxEventMessages = 60
)

func showEvent(p *page) error {
	run, err := p.Service.FindRun(p, p.Who, p.R.PathValue("id"))
	if err != nil {
		return err
	}
	seq, err := seqOf(p.R.PathValue("seq"))
	if err != nil {
		return errNoPage(p)
	}
	e, before, err := p.Service.Event(p, p.Who, run.ID, seq)
	if err != nil {
		return err
	}
	text, err := json.Marshal(e.Body)
	if err != nil {
		return err
	}
	d := eventPage{
		Run: run.ID, Seq: seq, Previous: seq - 1, At: e.Time, Kind: e.Body.EventKind(),
		JSON: excerptOf(maxEventJSON, string(text)).Text, Hash: fmt.Sprintf("%x", e.Hash),
	}
	switch b := e.Body.(type) {
	case *journal.ModelRequest:
		d.asked(b, before)
	case *journal.Verdicts:
		d.Verdicts = b.Verdicts
	case *journal.ToolResult:
		d.Result = b
	}
	return p.render("event", http.StatusOK, d)
}

// asked adds the input of the model.
func (d *eventPage) asked(b *journal.ModelRequest, before *core.State) {
	d.Request, d.System, d.Messages = b, before.Start.System, before.Messages
	if b.Model < len(before.Models) {
		d.Model = before.Models[b.Model].Ref
	}
	if b.OfferHash != "" {
		d.Tools = before.Offer.Names()
		if shown := before.ToolsShown(); shown != nil {
			d.Tools = nil
			for _, i := range shown {
				d.Tools = append(d.Tools, before.Offer.Tools[i].Name)
			}
		}
	}
	if d.More = max(0, len(d.Messages)-maxEventMessages); d.More > 0 {
		d.Messages = d.Messages[d.More:]
	}
}

// showResult answers with the whole result of a call, as text.
func showResult(p *page) error {
	run, err := p.Service.FindRun(p, p.Who, p.R.PathValue("id"))
	if err != nil {
		return err
	}
	seq, err := seqOf(p.R.PathValue("seq"))
	if err != nil {
		return errNoPage(p)
	}
	return p.Service.WriteResult(p, p.Who, run.ID, seq, p.slowly(), func(int64) {
		p.download(fmt.Sprintf("result-%s-%d.txt", run.ID, seq), "text/plain; charset=utf-8")
	})
}

func exportRun(p *page) error {
	run, err := p.Service.FindRun(p, p.Who, p.R.PathValue("id"))
	if err != nil {
		return err
	}
	p.download(string(run.ID)+".jsonl", "application/x-ndjson")
	if err := p.Service.ExportRun(p, p.Who, string(run.ID), p.slowly()); err != nil {
		p.Log.Info("a run was not exported whole", "run", run.ID, "error", err)
		panic(http.ErrAbortHandler) // so that the client sees that it is incomplete
	}
	return nil
}

// slow extends the write deadline with each write.
type slow struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (p *page) slowly() slow { return slow{p.W, http.NewResponseController(p.W)} }

func (s slow) Write(b []byte) (int, error) {
	_ = s.control.SetWriteDeadline(time.Now().Add(sseTimeout)) // if the connection supports it
	return s.w.Write(b)
}

// checkedPage is the data of the page with the result of a check.
type checkedPage struct {
	Run    toolcrib.RunID
	What   string // verify | replay
	OK     bool
	Detail string
}

// checkRun verifies the chain of a run, or replays it.
func checkRun(what string) func(*page) error {
	return func(p *page) error {
		check := func(id string) ([]api.Checked, error) { return p.Service.Verify(p, p.Who, id, nil) }
		if what == "replay" {
			check = func(id string) ([]api.Checked, error) { return p.Service.Replay(p, p.Who, id) }
		}
		found, err := check(p.R.PathValue("id"))
		if err != nil {
			return err
		}
		d := checkedPage{Run: toolcrib.RunID(p.R.PathValue("id")), What: what, OK: len(found) > 0}
		for _, one := range found {
			d.Run, d.OK, d.Detail = one.Run, d.OK && one.OK, one.Detail
		}
		return p.render("checked", http.StatusOK, d)
	}
}

// The actions of the page of a run.

func cancelRun(p *page) error {
	run, err := p.Pool.Cancel(p, p.Who, p.R.PathValue("id"))
	if err != nil {
		return err
	}
	return p.done("/runs/" + string(run.ID))
}

func sayToRun(p *page) error {
	id := p.R.PathValue("id")
	if err := p.Service.Say(p, p.Who, id, p.R.PostFormValue("text")); err != nil {
		return err
	}
	return p.done("/runs/" + id)
}

func resumeRun(p *page) error {
	q := service.ResumeRequest{
		Run: p.R.PathValue("id"), Model: p.R.PostFormValue("model"), Message: p.R.PostFormValue("text"), Once: p.once(),
	}
	var err error
	if q.Add.Iterations, err = p.count("iterations"); err != nil {
		return err
	}
	tokens, err := p.count("tokens")
	if err != nil {
		return err
	}
	q.Add.Tokens = int64(tokens)
	if q.Add.Requests, err = p.count("requests"); err != nil {
		return err
	}
	if text := strings.ReplaceAll(p.R.PostFormValue("cost"), ",", "."); text != "" {
		q.Add.CostUSD, err = strconv.ParseFloat(text, 64)
		if err != nil || !(q.Add.CostUSD >= 0 && q.Add.CostUSD <= service.MaxAddedCost) {
			return bad("cost: must be an amount from 0 to %.0f", service.MaxAddedCost)
		}
	}
	drive, err := p.Pool.Resume(p.staying(), p.Who, q)
	if err != nil {
		return err
	}
	if drive != nil && drive.ID() != "" {
		return p.done("/runs/" + string(drive.ID()))
	}
	return p.done("/runs/" + q.Run)
}

func forkRun(p *page) error {
	q := service.ForkRequest{Run: p.R.PathValue("id"), Prompt: p.R.PostFormValue("text"), Once: p.once()}
	var err error
	if q.Round, err = p.count("round"); err != nil {
		return err
	}
	drive, err := p.Pool.Fork(p.staying(), p.Who, q)
	if err != nil {
		return err
	}
	return p.done("/runs/" + string(drive.ID()))
}

// count reads a field with a number from 0 on; an empty one is 0.
func (p *page) count(name string) (int, error) {
	text := strings.TrimSpace(p.R.PostFormValue(name))
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, bad("%s: must be a whole number from 0 on", name)
	}
	return n, nil
}
