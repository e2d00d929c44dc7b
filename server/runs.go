package server

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/service/worker"
	"github.com/toolcrib/toolcrib/store"
)

// request returns the run to start for a body, in the caller's workspace.
func (c *call) request(b *api.RunRequest) (r service.StartRequest, err error) {
	r = service.StartRequest{
		Agent: b.Agent, Session: b.SessionID, Tools: b.Tools, Prompt: b.Input, Continue: b.Continue,
		Again: b.Again, Compact: b.Compact, Taint: b.Taint,
		Change: policy.Change{
			Model: b.Model, Skills: b.Skills, ReadOnly: b.ReadOnly, ToolChoice: (*toolcrib.ToolChoice)(b.ToolChoice),
		},
	}
	if r.Approve, err = approveOf(b.Approve); err != nil {
		return r, err
	}
	if r.Files, err = service.Attachments(b.Files); err != nil {
		return r, err
	}
	if len(b.Taint) > service.MaxAttachments || len(strings.Join(b.Taint, "")) > maxTaint {
		return r, bad("taint: at most %d sources, of %d bytes together", service.MaxAttachments, maxTaint)
	}
	for _, source := range b.Taint { // shown in approvals
		if source == "" || strings.ContainsAny(source, "\n\r\t") || source != guard.Visible(source) ||
			source != gate.Source(source) {
			return r, bad("taint: %q is no name of a source", source)
		}
	}
	ways := 0
	for _, given := range []bool{
		strings.TrimSpace(b.Input) != "" || len(b.Files) > 0, len(b.Messages) > 0, b.Again && b.Input == "",
		b.Compact && b.Input == "",
	} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1:
		return r, bad("give one of input, which must not be empty, messages, again and compact")
	case (b.Again || b.Compact) && b.SessionID == "" && !b.Continue:
		return r, bad("again, compact: are about a session; name it in session_id")
	}
	if r.Limits, err = limitsOf(b.Limits); err != nil {
		return r, err
	}
	if r.Messages, err = transcript(b.Messages); err != nil {
		return r, err
	}
	for _, t := range b.ClientTools {
		r.ClientTools = append(r.ClientTools, toolcrib.Spec{
			Name: t.Name, Description: t.Description, Parameters: t.Parameters, Effect: t.Effect,
		})
	}
	r.Workspace, err = c.Service.Policy.OwnWorkspace(c.who)
	return r, err
}

// startRun starts a run.
func (c *call) startRun(b api.RunRequest) (any, error) {
	r, err := c.request(&b)
	if err != nil {
		return nil, err
	}
	return c.start(r, b.Detach)
}

// start starts a run, once for each Idempotency-Key, and writes it.
func (c *call) start(r service.StartRequest, detach bool) (any, error) {
	return c.begins(detach, func(once string, sub *worker.Subscription) (*worker.Drive, error) {
		r.Once, r.Subscription = once, sub
		return c.startLogged(r)
	})
}

// startLogged starts a run, and logs its notices in one line.
func (c *call) startLogged(r service.StartRequest) (*worker.Drive, error) {
	said := notices{call: c}
	r.Notice = said.add
	defer said.log()
	return c.pool.Start(c.staying(), c.who, r)
}

// notices collects the notices before a run begins: at most maxNotices, each of at most maxNotice bytes.
type notices struct {
	call   *call
	mu     sync.Mutex
	texts  []string
	more   int
	logged bool
}

const (
	maxNotices = 5
	maxNotice  = 500
)

// add adds a notice. After log it only counts.
func (n *notices) add(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.texts) == maxNotices || n.logged {
		n.more++
		return
	}
	n.texts = append(n.texts, guard.Clip(n.call.Service.Env.Mask.Mask(text), maxNotice))
}

func (n *notices) log() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.logged = true; len(n.texts) == 0 {
		return
	}
	text := strings.Join(n.texts, "; ")
	if n.more > 0 {
		text += fmt.Sprintf("; and %d more", n.more)
	}
	n.call.Log.Info(text, "request_id", n.call.w.Header().Get("X-Request-ID"), "user", n.call.who.User)
}

// begins starts or continues a run, and writes it.
func (c *call) begins(
	detach bool, begin func(once string, sub *worker.Subscription) (*worker.Drive, error),
) (any, error) {
	once, err := c.once()
	if err != nil {
		return nil, err
	}
	sub := c.subscription(detach)
	defer sub.Close()
	drive, err := begin(once, sub)
	return c.outcome(detach, sub, drive, err)
}

// maxTaint bounds the names of sources of untrusted data in a request, in bytes.
const maxTaint = 4 << 10

// maxKey bounds an Idempotency-Key, in bytes.
const maxKey = 255

// once returns the key of a request that begins a run, or "".
func (c *call) once() (string, error) {
	name := c.r.Header.Get("Idempotency-Key")
	if len(name) > maxKey {
		return "", bad("Idempotency-Key: has more than %d bytes", maxKey)
	}
	return service.Once(c.who, name, c.r.URL.Path, string(c.body)), nil
}

// staying returns the context of work that continues after the client disconnects.
func (c *call) staying() context.Context { return context.WithoutCancel(c) }

// outcome writes a run that has begun: at once, as a stream, or when it has ended or parked.
func (c *call) outcome(detach bool, sub *worker.Subscription, drive *worker.Drive, err error) (any, error) {
	switch {
	case err != nil:
		return nil, err
	case detach:
		found, err := c.Service.Run(c, c.who, string(drive.ID()))
		if err == nil {
			c.wrote = true
			c.Server.answer(c.w, http.StatusAccepted, found)
		}
		return nil, err
	case c.streams():
		return nil, c.events(worker.Follow{
			Run: string(drive.ID()), Subscription: sub, Parks: true, After: toolcrib.Seq(c.number("after")),
		})
	}
	return c.pool.Outcome(c, c.who, drive)
}

// subscription returns a subscription for the run that is about to begin. If the answer is not a stream, it returns
// nil.
func (c *call) subscription(detach bool) *worker.Subscription {
	if detach || !c.streams() {
		return nil
	}
	return &worker.Subscription{Attends: c.yes("attends")}
}

// streams reports whether the client asks for events.
func (c *call) streams() bool {
	return strings.Contains(strings.ToLower(c.r.Header.Get("Accept")), "text/event-stream")
}

// closedEvent is the last event of a stream that ends early.
const closedEvent = "closed"

// events writes the events of a run as they occur.
func (c *call) events(f worker.Follow) error {
	out := c.stream(c.w)
	f.Attends = c.yes("attends")
	f.Idle = out.ping
	c.wrote = true
	if err := out.begin(); err != nil {
		return err
	}
	err := c.pool.Follow(c, c.who, f, out.frame)
	if err != nil && c.r.Context().Err() == nil {
		id := c.w.Header().Get("X-Request-ID")
		_ = out.frame(journal.Frame{Event: closedEvent, Data: c.failure(c.known(err, id), id)}) // may be disconnected
	}
	return nil
}

func (c *call) listRuns() (api.RunList, error) {
	if name := c.text("id"); name != "" {
		run, err := c.Service.FindRun(c, c.who, name)
		return api.RunList{Runs: []service.Run{run}}, err
	}
	runs, next, err := c.Service.Runs(c, c.who, service.RunsQuery{
		Filter: store.Filter{
			User: c.text("user"), Agent: c.text("agent"), Session: toolcrib.SessionID(c.text("session")),
			Parent: toolcrib.RunID(c.text("parent")), TopLevel: c.yes("top_level"), Since: c.time("since"),
			Limit: c.number("limit"), Cursor: c.text("cursor"),
		},
		Statuses: c.words("status"), Prompts: c.yes("prompts"),
	})
	return api.RunList{Runs: runs, Next: next}, err
}

func (c *call) showRun() (service.Run, error) {
	id, err := c.id("run_")
	if err != nil {
		return service.Run{}, err
	}
	return c.Service.Run(c, c.who, id)
}

// followRun streams the events of a run after the last one that the client knows.
func (c *call) followRun() (any, error) {
	after := c.number("after")
	if last := c.r.Header.Get("Last-Event-ID"); last != "" {
		var err error
		if after, err = strconv.Atoi(last); err != nil || after < 0 {
			return nil, bad("Last-Event-ID: must be the id of an event")
		}
	}
	run, err := c.run()
	if err != nil {
		return nil, err
	}
	until := c.text("until")
	if until == "now" {
		return nil, c.soFar(string(run.ID), toolcrib.Seq(after))
	} else if until != "" && until != "pause" && until != "end" {
		return nil, bad("until: must be now, pause or end")
	}
	return nil, c.events(worker.Follow{Run: string(run.ID), After: toolcrib.Seq(after), Parks: until == "pause"})
}

func (c *call) cancelRun(nothing) (service.Run, error) {
	id, err := c.id("run_")
	if err != nil {
		return service.Run{}, err
	}
	return c.pool.Cancel(c, c.who, id)
}

func (c *call) resumeRun(b api.ResumeRequest) (any, error) {
	if b.AddIterations < 0 || b.AddCost < 0 || b.AddCost > service.MaxAddedCost || b.AddTokens < 0 || b.AddRequests < 0 {
		return nil, bad("add_iterations, add_cost_usd, add_tokens, add_requests: must be 0 or more, add_cost_usd at most %.0f",
			service.MaxAddedCost)
	}
	run, err := c.run()
	if err != nil {
		return nil, err
	}
	approve, err := approveOf(b.Approve)
	if approve == agent.ApproveNone {
		approve = ""
	}
	if err != nil {
		return nil, err
	}
	return c.begins(b.Detach, func(once string, sub *worker.Subscription) (*worker.Drive, error) {
		return c.pool.Resume(c.staying(), c.who, service.ResumeRequest{
			Subscription: sub, Approve: approve, Once: once, Run: string(run.ID), Model: b.Model, Message: b.Message,
			Add: journal.Granted{
				Iterations: b.AddIterations, CostUSD: b.AddCost, Tokens: b.AddTokens, Requests: b.AddRequests,
			},
		})
	})
}

func (c *call) forkRun(b api.ForkRequest) (any, error) {
	round := 0
	if b.Round != nil {
		if round = *b.Round; round < 1 {
			return nil, bad("round: must be 1 or more: a round is a request to the model with the calls that it asks for, and " +
				"the new run starts before it; without round it starts before the last")
		}
	}
	run, err := c.run()
	if err != nil {
		return nil, err
	}
	approve, err := approveOf(b.Approve)
	if err != nil {
		return nil, err
	}
	return c.begins(b.Detach, func(once string, sub *worker.Subscription) (*worker.Drive, error) {
		return c.pool.Fork(c.staying(), c.who, service.ForkRequest{
			Run: string(run.ID), Round: round, Prompt: b.Input, Approve: approve, Once: once, Subscription: sub,
		})
	})
}
