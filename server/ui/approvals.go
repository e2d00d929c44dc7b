package ui

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	remembering "github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/store"
)

// approvalRoutes returns the routes of the page approvals. None of the method GET decides: programs follow links.
func approvalRoutes() []Route {
	return []Route{
		{Pattern: "GET /approvals", do: (*page).inbox},
		{Pattern: "GET /approvals/live", do: (*page).liveApprovals},
		{Pattern: "GET /approvals/{id}", do: (*page).showApproval},
		{Pattern: "POST /approvals/{id}", do: (*page).decide},
		{Pattern: "GET /approvals/{id}/edit", do: (*page).showEdit},
		{Pattern: "POST /approvals/{id}/edit", do: (*page).edit},
	}
}

// The filters of the inbox.
const (
	showOpen    = "open"    // who may decide
	showMine    = "mine"    // of the own runs, even if another person must decide
	showDecided = "decided" // the last ones
)

// Bounds of a page of the inbox: its runs, and how often runs are read to fill it, since filters leave some out.
const (
	inboxRuns  = 50
	inboxReads = 4
)

// maxDecidedRuns bounds the runs whose decided approvals are shown.
const maxDecidedRuns = 30

// inboxView is the data of the page approvals.
type inboxView struct {
	Show  string
	Shows []string
	Items []inboxItem
	Later bool   // a page after the first one
	Next  string // address of the next page, or ""
	Said  string // key of a text about the last decision, or ""
}

// inboxItem is an approval in a list.
type inboxItem struct {
	*service.Approval
	Tools   []string
	Another bool // another person must approve
	Tainted bool
	Last    *api.ApprovalWord // last decision, or nil
}

func (p *page) inbox() error {
	v := inboxView{Show: p.R.FormValue("show"), Shows: []string{showOpen, showMine, showDecided}, Said: p.said()}
	if v.Show == "" {
		v.Show = showOpen
	} else if !slices.Contains(v.Shows, v.Show) {
		return bad("show: must be one of %s", strings.Join(v.Shows, ", "))
	}
	cursor := p.R.FormValue("cursor")
	all, next, err := p.shown(v.Show, cursor)
	if err != nil {
		return err
	}
	if v.Later = cursor != ""; next != "" {
		v.Next = "/approvals?" + url.Values{"show": {v.Show}, "cursor": {next}}.Encode()
	}
	for _, a := range all {
		v.Items = append(v.Items, p.inboxItem(a))
	}
	if p.enhanced() {
		return p.part("approvals", "inbox", http.StatusOK, v)
	}
	return p.render("approvals", http.StatusOK, v)
}

// shown returns a page of the approvals of a filter, newest first, and the cursor of the next page. Where most are left
// out, the page has fewer than others, or none.
func (p *page) shown(show, cursor string) (all []*service.Approval, next string, err error) {
	if show == showDecided {
		all, err = p.Service.Decided(p, p.Who, maxDecidedRuns)
		return all, "", err
	}
	next = cursor
	for n := 0; n < inboxReads && len(all) < inboxRuns && (n == 0 || next != ""); n++ {
		var some []*service.Approval
		if some, next, err = p.Service.ApprovalPage(p, p.Who, inboxRuns-len(all), next); err != nil {
			return nil, "", err
		}
		for _, v := range some {
			if show == showMine && v.User == p.Who.User || show == showOpen && !p.needsAnother(v) {
				all = append(all, v)
			}
		}
	}
	return all, next, nil
}

func (p *page) needsAnother(v *service.Approval) bool {
	return v.Kind != journal.ApprovalInput && p.Service.NeedsAnother(p.Who, v.User)
}

func (p *page) inboxItem(v *service.Approval) inboxItem {
	one := inboxItem{Approval: v, Another: p.needsAnother(v), Tainted: len(v.Taint()) > 0}
	for _, c := range v.Calls {
		one.Tools = append(one.Tools, c.Name)
	}
	if n := len(v.Decisions); n > 0 {
		one.Last = &v.Decisions[n-1]
	}
	return one
}

// said returns the key of the text about the decision that led to this page.
func (p *page) said() string {
	switch do := p.R.URL.Query().Get("said"); do {
	case journal.DecisionApprove, journal.DecisionDeny, journal.DecisionRetry, journal.DecisionHappened,
		journal.DecisionNotHappened, journal.DecisionAnswer, "grant":
		return "approvals.said_" + do
	}
	return ""
}

// approvalView is the data of the page approval.
type approvalView struct {
	Decide   *deciding
	Before   []before // decisions on similar calls
	Kept     []kept   // remembered approvals of such calls
	Queue    []inboxItem
	Prev     string // the approvals around this one in the inbox
	Next     string
	RunShown bool // its run may be shown to this person
	Conflict bool // a decision came too late
	Said     string
}

// before is a decision about a call of the same tool.
type before struct {
	ID, Tool, Agent, User string
	Word                  *api.ApprovalWord
	Decision              string // about the call
}

// kept is a remembered approval.
type kept struct {
	store.Remembered
	Cover cover
}

var approvalID = lazyregexp.New(`^apr_[0-9A-Z]{26}$`)

// approval returns the approval that the path names.
func (p *page) approval() (*service.Approval, error) {
	id := p.R.PathValue("id")
	if !approvalID.MatchString(id) {
		return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "")
	}
	return p.Service.Approval(p, p.Who, id)
}

func (p *page) showApproval() error {
	v, err := p.approval()
	if err != nil {
		return err
	}
	if p.enhanced() {
		return p.part("approval", "approval-outcome", http.StatusOK, v)
	}
	return p.render("approval", http.StatusOK, p.approvalView(v))
}

// maxBefore bounds the earlier decisions that are shown.
const maxBefore = 5

func (p *page) approvalView(v *service.Approval) *approvalView {
	view := &approvalView{Decide: p.decideData(v), RunShown: env.Visible(p.Who, v.User), Said: p.said()}
	tools := map[string]bool{}
	for _, c := range v.Calls {
		tools[c.Name] = true
	}
	if v.Status == api.ApprovalPending {
		view.queue(p, v)
	}
	if v.Kind != journal.ApprovalCall {
		return view
	}
	if all, err := p.Service.Decided(p, p.Who, maxDecidedRuns); err == nil {
		view.Before = decidedBefore(v, all, tools)
	}
	if all, err := p.Service.Policy.Remembered(p, p.Who, false, store.MaxLimit); err == nil {
		for _, m := range all {
			if tools[m.Tool] && m.User == v.User && len(view.Kept) < maxBefore {
				covers := remembering.RememberedCalls(m)
				view.Kept = append(view.Kept, kept{m, coverOf(kindOf(&covers), &covers, &journal.ApprovalItem{}, false)})
			}
		}
	}
	return view
}

// kindOf returns the kind of calls to which a remembered approval applies.
func kindOf(m *journal.Remembered) string {
	switch {
	case m.Program != "":
		return journal.RememberProgram
	case m.Arguments != nil:
		return journal.RememberArguments
	case m.Folder:
		return journal.RememberFolder
	case m.Path != "":
		return journal.RememberPath
	}
	return journal.RememberTool
}

// queue adds the open approvals around this one: those of its page of the inbox, if that is one of the first pages.
func (view *approvalView) queue(p *page, v *service.Approval) {
	is := func(o *service.Approval) bool { return o.ID == v.ID }
	var last, open []*service.Approval
	cursor := ""
	for n := 0; n < maxQueuePages && !slices.ContainsFunc(open, is) && (n == 0 || cursor != ""); n++ {
		some, next, err := p.shown(showOpen, cursor)
		if err != nil {
			return // the approval itself can be shown
		}
		last, open, cursor = open, some, next
	}
	for _, o := range open {
		view.Queue = append(view.Queue, p.inboxItem(o))
	}
	at := slices.IndexFunc(open, is)
	switch {
	case at > 0:
		view.Prev = open[at-1].ID
	case at == 0 && len(last) > 0:
		view.Prev = last[len(last)-1].ID
	}
	switch {
	case at >= 0 && at+1 < len(open):
		view.Next = open[at+1].ID
	case at >= 0 && cursor != "":
		if after, _, err := p.shown(showOpen, cursor); err == nil && len(after) > 0 {
			view.Next = after[0].ID
		}
	}
}

// maxQueuePages bounds the pages of the inbox in which an approval is looked for.
const maxQueuePages = 4

// decidedBefore returns the decisions about calls of the same tools, those for the same agent first.
func decidedBefore(v *service.Approval, all []*service.Approval, tools map[string]bool) (list []before) {
	for _, same := range []bool{true, false} {
		for _, o := range all {
			if o.ID == v.ID || (o.Agent == v.Agent) != same {
				continue
			}
			for _, c := range o.Calls {
				if tools[c.Name] && c.Decision != "" && len(list) < maxBefore {
					list = append(list, before{o.ID, c.Name, o.Agent, o.User, &o.Decisions[len(o.Decisions)-1], c.Decision})
				}
			}
		}
	}
	return list
}

// editView is the data of the page edit.
type editView struct {
	*service.Approval
	Call    decidingCall
	Another bool
	Form    *field
	JSON    string
	Wrong   string        // why JSON is not valid
	Shown   *decidingCall // the call with the new arguments, or nil
}

// editing returns the call to edit, with the form for its arguments.
func (p *page) editing() (*editView, error) {
	v, err := p.approval()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(v.Calls, func(c api.ApprovalCall) bool { return c.ID == p.R.FormValue("call") })
	if i < 0 || v.Kind != journal.ApprovalCall {
		return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "")
	}
	e := &editView{Approval: v, Call: newDecidingCall(v, &v.Calls[i]), Another: p.needsAnother(v)}
	e.JSON = prettyEscaped(e.Call.Arguments)
	if tool, err := p.Service.Policy.Tool(p, p.Who, e.Call.Name); err == nil {
		e.Form = fieldsOf(tool.Parameters, "f", e.Call.Arguments)
	}
	return e, nil
}

func (p *page) showEdit() error {
	e, err := p.editing()
	if err != nil {
		return err
	}
	return p.render("approvaledit", http.StatusOK, e)
}

// edit approves a call with other arguments, or shows their effect.
func (p *page) edit() error {
	e, err := p.editing()
	if err != nil {
		return err
	}
	do, from, _ := strings.Cut(p.R.PostFormValue("do"), " ")
	arguments, err := e.read(p, from)
	if err != nil {
		if p.enhanced() && from == "fields" {
			return p.part("approvaledit", "schema-errors", http.StatusBadRequest, e.Form.wrongs())
		} else if p.enhanced() {
			return bad("%s", e.Wrong)
		}
		return p.render("approvaledit", http.StatusBadRequest, e)
	}
	d := service.Decision{
		CallDecision: journal.CallDecision{Decision: journal.DecisionApprove, Arguments: arguments},
		Calls:        []string{e.Call.ID}, Digest: p.R.PostFormValue("digest"),
	}
	if do == "preview" {
		err = p.previewEdit(e, d)
	} else if err = p.record(e.Approval, d); err == nil {
		return p.done(p.after(e.Approval, journal.DecisionApprove))
	}
	switch {
	case toolcrib.CodeOf(err) == toolcrib.CodeConflict:
		return p.conflict(e.Approval, err)
	case toolcrib.CodeOf(err) == toolcrib.CodeBadRequest && !p.enhanced(): // refused by the policy
		e.Wrong = p.Readable(p.Request, err).Message
		return p.render("approvaledit", http.StatusBadRequest, e)
	}
	return err
}

// read returns the arguments that the form was sent with.
func (e *editView) read(p *page, from string) (json.RawMessage, error) {
	if from == "fields" && e.Form != nil {
		value, ok := e.Form.valueOf(p.R.PostForm)
		if !ok {
			return nil, &wrongFields{e.Form}
		}
		e.JSON = prettyEscaped(value)
		return value, nil
	}
	e.JSON = p.R.PostFormValue("arguments")
	canonical, err := guard.Arguments([]byte(e.JSON))
	if err != nil {
		e.Wrong = err.Error()
	}
	return canonical, err
}

// previewEdit shows the effect of a call with other arguments.
func (p *page) previewEdit(e *editView, d service.Decision) error {
	err := p.Service.Check(p, p.Who, e.Approval, d)
	if err != nil && !errors.Is(err, agent.ErrFourEyes) { // another person may approve this
		return err
	}
	item, err := p.Service.Edited(p, e.Approval, e.Call.ApprovalItem, d.Arguments)
	if err != nil {
		return err
	}
	shown := newDecidingCall(e.Approval, &api.ApprovalCall{ApprovalItem: item})
	e.Shown = &shown
	if p.enhanced() {
		return p.part("approvaledit", "approval-edited", http.StatusOK, e)
	}
	return p.render("approvaledit", http.StatusOK, e)
}

// The times of the stream of the inbox.
const (
	inboxEvery = time.Second
	inboxIdle  = 15 // seconds until a line that keeps proxies from closing the stream
)

// liveApprovals streams the IDs of the approvals that wait, whenever they change.
func (p *page) liveApprovals() error {
	out, end, err := p.stream()
	if err != nil {
		return err
	}
	defer end()
	tick := time.NewTicker(inboxEvery)
	defer tick.Stop()
	var last []string
	for n := 0; ; n++ {
		ids, err := p.Service.Waiting(p, p.Who)
		switch {
		case err != nil:
			return err
		case n == 0 || !slices.Equal(ids, last):
			last, err = ids, out.send(0, "waiting", ids)
		case n%inboxIdle == 0:
			err = out.ping()
		}
		if err != nil {
			return nil // the client has disconnected
		}
		select {
		case <-tick.C:
		case <-p.Done():
			return nil
		case <-p.Pool.Closing():
			return nil
		}
	}
}
