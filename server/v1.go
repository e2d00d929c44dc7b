package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/server/openai"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/service/worker"
)

// v1Routes returns the routes of OpenAI's APIs.
func v1Routes() []route {
	return []route{
		get("/v1/models", "The agents that a request may name as its model", (*call).v1Models),
		get("/v1/models/{model}", "One of them", (*call).v1Model),
		get("/v1/models/{kind}/{model}", "One of them, without the slash encoded", (*call).v1Model),
		answering("/v1/chat/completions", "Create a chat completion", reflect.TypeFor[openai.ChatCompletion](),
			func(_ *call, b openai.ChatRequest) (*openai.Ask, error) {
				return openai.ReadChat(b)
			}, openai.NewChat),
		answering("/v1/responses", "Create a response", reflect.TypeFor[openai.Response](),
			func(c *call, b openai.ResponsesRequest) (*openai.Ask, error) {
				return openai.ReadResponses(b, c.v1Items())
			}, openai.NewRespond),
	}
}

// bodyOf returns the schema of a body whose fields are decoded one by one.
func bodyOf(fields []openai.Field, required ...string) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type: "object", Required: required, Properties: map[string]*jsonschema.Schema{},
		AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	for _, f := range fields {
		s.Properties[f.Name] = &jsonschema.Schema{Description: f.About, MaxItems: jsonschema.Ptr(maxEntries)}
	}
	return s
}

// v1 reports whether a path belongs to OpenAI's APIs.
func v1(path string) bool { return strings.HasPrefix(path, "/v1/") }

// v1Writer marks a response of OpenAI's APIs, which have their own form of errors.
type v1Writer struct{ http.ResponseWriter }

// Unwrap is for [http.ResponseController].
func (w v1Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// v1Failure writes an error in the form of OpenAI's APIs.
func (s *Server) v1Failure(w http.ResponseWriter, status int, cause error, e *toolcrib.Error, f api.Failure) {
	if !openai.Again(status, cause) {
		w.Header().Set("x-should-retry", "false")
	}
	s.answer(w, status, openai.NewErrorBody(cause, e, f.Message, status, f.RequestID))
}

// V1Models is a list of models.
type V1Models struct {
	Object string    `json:"object"`
	Data   []V1Model `json:"data"`
}

// V1Model is an agent as a model.
type V1Model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Owner   string `json:"owned_by"`
}

// Prefixes of the names of models.
const (
	agentModel = "agent/"
	panelModel = "confer/"
)

func (c *call) v1Models() (V1Models, error) {
	list := V1Models{Object: "list", Data: []V1Model{}}
	names, err := c.Service.Policy.RunnableAgents(c, c.who)
	var panels []string
	for name, panel := range c.Service.Env.Config.Team.Panels {
		if !slices.ContainsFunc(panel.Agents, func(agent string) bool { return !slices.Contains(names, agent) }) {
			panels = append(panels, panelModel+name)
		}
	}
	for i := range names {
		names[i] = agentModel + names[i]
	}
	slices.Sort(panels)
	names = append(names, panels...)
	for _, name := range names {
		list.Data = append(list.Data, V1Model{ID: name, Object: "model", Created: c.since.Unix(), Owner: "toolcrib"})
	}
	return list, err
}

func (c *call) v1Model() (V1Model, error) {
	name := strings.TrimPrefix(c.r.PathValue("kind")+"/"+c.r.PathValue("model"), "/")
	list, err := c.v1Models()
	for _, m := range list.Data {
		if m.ID == name || m.ID == agentModel+name {
			return m, err
		}
	}
	return V1Model{}, cmp.Or(err, noModel("not found"))
}

// answering returns a route of one of the APIs, which reads requests with read and begins answers with begin.
func answering[B any](path, summary string, answer reflect.Type, read func(*call, B) (*openai.Ask, error),
	begin form,
) route {
	r := send(http.MethodPost, path, summary, func(c *call, b B) (any, error) {
		a, err := read(c, b)
		if err != nil {
			return nil, err
		}
		return c.asked(a, begin)
	}, onceParam, retryParam)
	r.events, r.answer = true, answer
	return r
}

// v1Stream is a stream of events whose header is sent with the first event.
type v1Stream struct {
	*stream
	gone bool // whether a write has failed
}

func (o *v1Stream) send(p []byte) (err error) {
	if !o.begun {
		err = o.begin()
	}
	if err == nil {
		err = o.write(p)
	}
	o.gone = err != nil
	return err
}

// event sends an event. name may be "".
func (o *v1Stream) event(name string, v any) error {
	data := []byte("[DONE]\n")
	if v != openai.Done {
		var err error
		if data, err = guard.EncodeJSON(v, false); err != nil {
			return err
		}
	}
	head := ""
	if name != "" {
		head = "event: " + name + "\n"
	}
	return o.send(slices.Concat([]byte(head+"data: "), data, []byte("\n")))
}

// form returns the answer to a request. write sends a piece of a stream; if nil, the answer is sent as a whole.
type form = func(a *openai.Ask, id string, created int64, write openai.Write) openai.Answer

// asked answers a request with a new run, with a run that it continues, or with the run of the request that it
// repeats.
func (c *call) asked(a *openai.Ask, begin form) (answer any, err error) {
	if len(a.Messages) == 0 { // the field is null
		return nil, bad("the conversation is missing: messages, or input")
	}
	name := c.r.Header.Get("Idempotency-Key")
	if len(name) > maxKey {
		return nil, bad("Idempotency-Key: has more than %d bytes", maxKey)
	}
	what, retry := "\x00key\x00"+name, false
	if name == "" {
		n, _ := strconv.Atoi(c.r.Header.Get(retryParam.name))
		what, retry = "\x00body\x00"+string(c.body), n > 0
	}
	key := sha256.Sum256([]byte(c.who.User + "\x00" + c.who.Token + "\x00" + c.r.URL.Path + what))
	one, err := c.asking.enter(key, name != "", retry)
	if err != nil {
		return nil, err
	}
	var now replying
	gone, s, who := false, c.Server, c.who // keeps nothing else of the request
	defer func() {
		c.asking.leave(one, retry, now.run != "", gone, err != nil, func() { s.abandon(who, now.run) })
	}()
	var sub *worker.Subscription
	if a.Stream {
		sub = &worker.Subscription{}
		defer sub.Close()
	}
	if now, err = c.v1Begin(a, one, retry, sub); err != nil {
		return nil, err
	}
	var out *v1Stream
	var write openai.Write
	if a.Stream {
		out = &v1Stream{stream: c.stream(c.w)}
		write = out.event
	}
	id := strings.TrimPrefix(string(now.run), "run_") + "_" + strconv.FormatInt(int64(now.after), 10)
	teller := openai.NewTeller(a, begin(a, id, now.created, write), now.before)
	err = c.tell(&now, sub, teller, out)
	gone = c.r.Context().Err() != nil || out != nil && out.gone
	if err == nil || out == nil || !out.begun {
		c.wrote = err == nil && out != nil
		return teller.Whole(), err
	}
	c.wrote = true
	if !gone {
		id := c.w.Header().Get("X-Request-ID")
		e := c.known(err, id)
		body := openai.NewErrorBody(err, e, c.failure(e, id).Message, statuses[e.Code], id)
		_ = teller.Fail(body.Error, teller.Spent()) // the client may have disconnected
	}
	return nil, nil
}

// tell writes the outcome of a run.
func (c *call) tell(one *replying, sub *worker.Subscription, t *openai.Teller, out *v1Stream) error {
	retries := false // the model is being asked again, and may not answer
	f := worker.Follow{Run: string(one.run), Subscription: sub, After: one.after, Parks: true, Idle: func() error {
		if out == nil || !out.begun && retries { // an error before the first piece is the whole answer
			return nil
		}
		return out.send([]byte(": ping\n\n"))
	}}
	err := c.pool.Follow(c, c.who, f, func(frame journal.Frame) error {
		n, ok := frame.Data.(toolcrib.Notice)
		retries = (retries && !ok || n.Code == core.NoticeRetry) && frame.Event != string(journal.KindMessage)
		return t.Frame(frame)
	})
	if err != nil && !errors.Is(err, openai.ErrOver) {
		return err
	}
	run, err := c.Service.Run(c, c.who, string(one.run))
	if err != nil {
		return err
	}
	if run.Spent != nil && t.Paused == nil {
		t.Used = *run.Spent // includes the runs of a panel's agents and of sub-agents
	}
	if err := c.v1Failed(one.run, t); err != nil {
		return err
	}
	return t.Over(one.run, place(&run), c.v1Waits)
}

// place returns a function that finds the position of a call among all calls of a run, from 1.
func place(run *service.Run) func(id string) int {
	return func(id string) int {
		return 1 + slices.IndexFunc(run.Trace, func(call api.TraceCall) bool { return call.ID == id })
	}
}

// v1Failed returns why a run has no answer, or nil if it has one.
func (c *call) v1Failed(run toolcrib.RunID, t *openai.Teller) error {
	switch {
	case t.Failed != nil:
		e := toolcrib.Errorf(toolcrib.CodeBadRequest, "run %s failed: %s", run, t.Failed.Message)
		switch t.Failed.StopReason {
		case toolcrib.StopProviderFailed:
			e.Code = toolcrib.CodeProviderFailed
			return &openai.Error{Err: e, Lasts: lasts(t.Failed.Class)}
		case toolcrib.StopContextLength:
			return &openai.Error{Param: "", Code: "context_length_exceeded", Err: e}
		case toolcrib.StopPolicyDenied, toolcrib.StopApprovalDenied:
			e.Code = toolcrib.CodeForbidden
		case toolcrib.StopWorkerLost:
			e.Code = toolcrib.CodeInternal
		}
		return e
	case t.Done != nil && t.Done.Status == toolcrib.StatusCancelled:
		return toolcrib.Errorf(toolcrib.CodeConflict, "run %s was cancelled", run)
	case t.Paused != nil && t.Paused.Pending.Kind == journal.PendingProvider:
		why, last := "", false
		if e := t.Paused.Pending.Error; e != nil {
			last = lasts(e.Class)
			why = fmt.Sprintf(": %s: %s (%s)", e.Class, e.Message, cmp.Or(e.Ref, e.Provider))
		}
		return &openai.Error{Lasts: last, Err: toolcrib.Errorf(toolcrib.CodeProviderFailed,
			"run %s waits for its provider and will continue on its own%s", run, why)}
	case t.Done == nil && t.Paused == nil:
		return toolcrib.Errorf(toolcrib.CodeInternal, "run %s has no outcome", run)
	}
	return nil
}

// lasts reports whether a provider would reject the same request again.
func lasts(class toolcrib.ErrorClass) bool {
	return class == toolcrib.ErrAuth || class == toolcrib.ErrBadRequest || class == toolcrib.ErrRefused
}

// v1Waits returns the text for a person about a run that waits for one.
func (c *call) v1Waits(p *journal.Pending) string {
	names := make([]string, len(p.Calls))
	for i := range p.Calls {
		names[i] = p.Calls[i].Name
	}
	what := "This waits for an approval of " + strings.Join(names, ", ") + "."
	switch {
	case p.Kind == string(journal.ApprovalInput):
		what = "This waits for an answer: " + p.Question
	case p.Kind == string(journal.ApprovalInDoubt):
		what = "Did " + strings.Join(names, ", ") + " take effect? The run waits for a decision."
	}
	return what + "\n\nApproval " + p.ApprovalID + ": " + c.origin() + "/approvals/" + p.ApprovalID +
		" (or: toolcrib approvals show " + p.ApprovalID + "). The run continues after the decision."
}

// v1Begin starts a run for a request, continues the run that waits for its results, or finds the run of the
// request that it repeats. Concurrent copies of one request wait for each other.
func (c *call) v1Begin(a *openai.Ask, one *asked, retry bool, sub *worker.Subscription) (replying, error) {
	one.mu.Lock()
	defer one.mu.Unlock()
	sum := sha256.Sum256(c.body)
	if one.run != "" && one.body != sum {
		return replying{}, toolcrib.Errorf(toolcrib.CodeConflict, "this Idempotency-Key was used with another request")
	}
	r, given, err := c.v1Request(a, one)
	if err != nil {
		return replying{}, err
	}
	r.Approve, r.Subscription = agent.ApproveNone, sub
	if r.Workspace, err = c.Service.Policy.OwnWorkspace(c.who); err != nil {
		return replying{}, err
	}
	if r.Once, err = c.once(); err != nil {
		return replying{}, err
	}
	if r.Once == "" {
		r.Once = service.Once(c.who, rand.Text(), c.r.URL.Path, string(c.body))
	}
	now := one.replying
	switch {
	case given != nil:
		now = *given
	case now.run == "" && retry && c.restarted():
		now.run, err = c.asking.lost(func(taken []toolcrib.RunID) (toolcrib.RunID, error) {
			return c.Service.Asked(c, c.who, r.Once, c.since, time.Now().Add(-afterFailed*c.asking.window), taken)
		})
	case now.run == "" && one.keyed:
		now.run, err = c.Service.Begun(c, r.Once)
	}
	if err != nil {
		return replying{}, err
	}
	was := now.run
	if was == "" {
		var drive *worker.Drive
		if drive, err = c.startLogged(r); err == nil {
			now.run = drive.ID()
			if r.Replaces != "" {
				c.v1Left(a, r.Replaces)
			}
		}
	} else if given == nil || !given.new {
		var again bool
		if now.run, again, err = c.pool.Repeat(c.staying(), c.who, was, r); again {
			c.asking.renew(one)
		}
	}
	if err != nil {
		c.asking.untake(was)
		return replying{}, err
	}
	if one.run == "" || now.run != was {
		now.created = time.Now().Unix()
	}
	if was != "" && now.run != was { // another run, whose answer begins at its start
		now.after, now.before = 0, toolcrib.Usage{}
	}
	now.new, one.body, one.replying = false, sum, now
	return now, nil
}

// v1Request returns the run to start for a request. given is the run that has now or already its results, or nil,
// also if the run of the request is known.
func (c *call) v1Request(a *openai.Ask, one *asked) (r service.StartRequest, given *replying, err error) {
	if panel, ok := strings.CutPrefix(a.Model, panelModel); ok {
		r, err = c.v1Panel(a, panel)
		return r, nil, err
	}
	name := strings.TrimPrefix(a.Model, agentModel)
	if !slices.Contains(c.Service.Env.Config.AgentNames(), name) {
		return r, nil, noModel("there is no agent " + strconv.Quote(name))
	}
	if one.run == "" {
		if given, err = c.v1Continue(a, name); err != nil {
			return r, nil, err
		}
	}
	waited, err := c.v1Decided(a)
	r = v1Agent(a, name)
	r.Replaces = cmp.Or(r.Replaces, waited)
	return r, given, err
}

// restarted reports whether a request may repeat one from before the start of this process.
func (s *Server) restarted() bool { return time.Since(s.since) < afterFailed*s.asking.window }

func noModel(what string) error {
	return &openai.Error{Param: "model", Code: "model_not_found", Err: toolcrib.Errorf(toolcrib.CodeNotFound,
		"%s; see /v1/models", what)}
}

// v1Agent returns the run of an agent for a request.
func v1Agent(a *openai.Ask, name string) service.StartRequest {
	r := service.StartRequest{
		Agent: name, Messages: a.Messages, MessageFiles: a.Files, ClientTools: a.Tools,
		Asked: a.Digest(), Replaces: a.Answers(),
		Change: policy.Change{ToolChoice: a.Choice, Answering: policy.Answering{
			System: a.System, Temperature: a.Temperature, MaxOutputTokens: a.MaxOutputTokens, Schema: a.Schema,
			Reasoning: a.Effort,
		}},
	}
	if a.OneCall {
		r.Limits.MaxCallsPerTurn = 1
	}
	last := len(a.Messages) - 1
	if a.Messages[last].Role == toolcrib.RoleUser {
		r.Prompt, r.Messages = a.Messages[last].Text(), a.Messages[:last]
		r.Files = a.Files[last]
		delete(r.MessageFiles, last)
	}
	return r
}

// v1Panel returns the run of a panel, which is asked the last message and reads those before it.
func (c *call) v1Panel(a *openai.Ask, name string) (service.StartRequest, error) {
	last := len(a.Messages) - 1
	r, err := c.Service.AskPanel(name, a.Messages[last].Text())
	switch {
	case toolcrib.CodeOf(err) == toolcrib.CodeNotFound:
		return r, noModel(err.Error())
	case err != nil:
		return r, err
	case a.Tools != nil, a.Choice != nil, a.Schema != nil, a.Temperature != nil, a.MaxOutputTokens > 0,
		a.OneCall, a.Effort != "":
		return r, &openai.Error{Param: "model", Err: toolcrib.Errorf(toolcrib.CodeBadRequest,
			"a panel takes messages; tools, format and parameters are those of its agents")}
	case a.Messages[last].Role != toolcrib.RoleUser:
		return r, bad("messages: must end with a message of the user")
	}
	r.Agent, r.Files, r.Team.Context = string(r.Team.Kind), a.Files[last], a.Before()
	r.Messages = a.Messages[:last] // part of the context
	return r, nil
}

// v1Continue gives a run the results that it waits for, if the request is like the one that started it. It
// returns nil if another run answers: the request has no results of a run of this server, or the conversation
// has taken another course, such as another agent, other or late results, or a message after the answer.
func (c *call) v1Continue(a *openai.Ask, name string) (*replying, error) {
	id := a.Answers()
	if id == "" {
		return nil, nil // the conversation began elsewhere
	}
	defer c.giving(id)() // of two requests, the second must not change the run
	run, err := c.Service.Run(c, c.who, string(id))
	if err == nil && run.PrunedAt != nil {
		return nil, nil
	}
	var results []service.ClientResult
	known := false
	if err == nil {
		results, known, err = v1Results(a, &run)
	}
	if toolcrib.CodeOf(err) == toolcrib.CodeNotFound && len(a.Said) > 0 { // removed, or of another user
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	waits := slices.ContainsFunc(results, func(r service.ClientResult) bool { return waitsFor(&run, r.CallID) })
	// A message after an answer starts a new run, unless this run read it before a restart.
	begins := len(a.Said) > 0 && !waits
	asked, err := c.Service.RequestOf(c, c.who, run.ID)
	if err != nil {
		return nil, err
	}
	if run.Agent != name || asked != a.Digest() || !waits && !known || begins && !c.restarted() {
		return nil, nil
	}
	said := c.Service.Env.Mask.Clean(strings.Join(a.Said, "\n\n"))
	after, before, heard, err := c.v1Since(id, results[0].CallID, said)
	if err != nil || begins && !heard && run.Status.Ended() {
		return nil, err
	}
	given := &replying{run: id, after: after, before: before, new: !known}
	if known { // a retry of an unknown request
		return given, nil
	}
	for _, call := range run.Pending.Calls {
		if !slices.ContainsFunc(results, func(r service.ClientResult) bool { return r.CallID == call.ID }) {
			return nil, nil // the client has dropped a call
		}
	}
	if a.SaidFiles {
		return nil, bad("messages: files cannot be sent with the results of tool calls; send them in the next request")
	}
	// A call that already has another result keeps it.
	results = slices.DeleteFunc(results, func(r service.ClientResult) bool { return !waitsFor(&run, r.CallID) })
	if len(a.Said) > 0 { // all or nothing
		if err := c.Service.Say(c.staying(), c.who, string(id), said); err != nil {
			return nil, err
		}
	}
	if _, err := c.pool.GiveResults(c.staying(), c.who, string(id), results); err != nil {
		return nil, err
	}
	return given, nil
}

// waitsFor reports whether a run waits for the result of a client tool.
func waitsFor(run *service.Run, call string) bool {
	return run.Status == toolcrib.StatusWaitingForTool &&
		slices.ContainsFunc(run.Pending.Calls, func(c api.PendingCall) bool { return c.ID == call })
}

// v1Left cancels a run that waits for results if another run answers the request.
func (c *call) v1Left(a *openai.Ask, id toolcrib.RunID) {
	defer c.giving(id)()
	run, err := c.Service.Run(c.staying(), c.who, string(id))
	if err != nil {
		return // removed, or of another user
	}
	results, _, err := v1Results(a, &run)
	if err == nil && slices.ContainsFunc(results, func(r service.ClientResult) bool { return waitsFor(&run, r.CallID) }) {
		_, err = c.pool.Cancel(c.staying(), c.who, string(id))
	}
	if err != nil {
		c.Log.Info("a run that another answers in place of was not cancelled", "run", id, "error", err)
	}
}

// v1Results returns the results of a request for its run. known reports whether the run has all of them.
func v1Results(a *openai.Ask, run *service.Run) (results []service.ClientResult, known bool, err error) {
	results, known = make([]service.ClientResult, len(a.Results)), true
	for i, r := range a.Results {
		of, n, ok := openai.ReadCallID(r.CallID)
		if !ok || of != run.ID || n > len(run.Trace) {
			return nil, false, toolcrib.Errorf(toolcrib.CodeNotFound, "run %s has no call %s", run.ID, strconv.Quote(r.CallID))
		}
		body, err := json.Marshal(r.Content)
		if err != nil {
			return nil, false, err
		}
		made := &run.Trace[n-1]
		results[i] = service.ClientResult{CallID: made.ID, Body: body}
		inside, ok := guard.Unfence(made.Result) // a shortened or masked one differs from the request
		known = known && made.Status == toolcrib.ResultOK && ok && guard.WithoutCanary(inside) == r.Content
	}
	return results, known, nil
}

// v1Since returns the event at which the run paused for a call, where the answer to its result begins, and the
// usage until then. heard reports whether the run has read a message of the user since.
func (c *call) v1Since(run toolcrib.RunID, id, said string) (after toolcrib.Seq, before toolcrib.Usage, heard bool,
	err error,
) {
	var used toolcrib.Usage
	err = c.Service.Events(c, c.who, string(run), 0, false, func(f journal.Frame) error {
		switch v := f.Data.(type) {
		case *journal.Paused:
			has := func(item journal.ApprovalItem) bool { return item.ID == id }
			if v.Pending.Kind == journal.PendingClientTool && slices.ContainsFunc(v.Pending.Calls, has) {
				after, before, heard = f.Seq, used, false
			}
		case journal.UserMessageView:
			heard = heard || v.Text == said
		case toolcrib.Usage:
			used = v
		}
		return nil
	})
	return after, before, heard, err
}

// abandon cancels a run whose client has disconnected and not returned. A parked run stays: it costs nothing,
// and can still be decided.
func (s *Server) abandon(who toolcrib.Principal, run toolcrib.RunID) {
	ctx, stop := context.WithTimeout(context.Background(), drainTimeout)
	defer stop()
	now, err := s.Service.FindRun(ctx, who, string(run))
	if err == nil && !now.Status.Ended() && !now.Status.Parked() {
		_, err = s.pool.Cancel(ctx, who, string(run))
	}
	if err != nil {
		s.Log.Info("a run whose client has gone was not cancelled", "run", run, "error", err)
	}
}

// retryWindow is how long a retry finds the run of a request whose answer was not fully sent, and how long that
// run continues without a client. It exceeds the first retry delays of common clients. After a failure, and with
// a key, it is afterFailed times as long.
const (
	retryWindow = 15 * time.Second
	afterFailed = 4
	maxAsked    = 10_000
)

// asking has the requests of OpenAI's APIs that are being answered, and those that can be repeated: with a key,
// or with an answer that was not fully sent.
type asking struct {
	window time.Duration
	most   int
	mu     sync.Mutex
	count  int
	by     map[[sha256.Size]byte][]*asked
	taken  []toolcrib.RunID // runs from before the start of this process that have a retry
}

// replying is the run that answers a request.
type replying struct {
	run     toolcrib.RunID // "" before it has begun
	after   toolcrib.Seq   // the event after which the answer begins
	before  toolcrib.Usage // usage of the run until then
	created int64
	new     bool // whether the request has just continued it
}

// asked is a request in asking.
type asked struct {
	key   [sha256.Size]byte
	keyed bool

	mu   sync.Mutex // locked while the run begins
	body [sha256.Size]byte
	replying

	// Guarded by asking.mu.
	waiting int  // number of requests that wait for the answer
	taken   bool // whether one of them is a retry
	begun   bool // whether there is a run
	sent    bool // whether the answer was fully sent
	gone    bool
	left    time.Time
	until   time.Time // when it is removed; zero if not known yet
	timer   *time.Timer
}

// enter returns the entry of a request, which is an existing one if it has a key or is a retry. A retry prefers
// one for which no request waits.
func (k *asking) enter(key [sha256.Size]byte, keyed, retry bool) (*asked, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var one *asked
	for _, known := range k.by[key] {
		open := keyed || retry && !known.taken && !known.sent
		if open && (one == nil || one.waiting > 0 && known.waiting == 0) {
			one = known
		}
	}
	if one == nil {
		if k.count >= k.most && !k.forget() {
			err := toolcrib.Errorf(toolcrib.CodeCapacityExceeded, "too many requests are kept for a retry")
			err.RetryAfter = time.Second
			return nil, err
		}
		if k.by == nil {
			k.by = map[[sha256.Size]byte][]*asked{}
		}
		one = &asked{key: key, keyed: keyed}
		k.by[key] = append(k.by[key], one)
		k.count++
	}
	one.taken = retry
	if one.waiting++; one.timer != nil {
		one.timer.Stop()
	}
	return one, nil
}

// drop removes a request, and reports whether it was there.
func (k *asking) drop(one *asked) bool {
	i := slices.Index(k.by[one.key], one)
	if i < 0 {
		return false
	}
	k.count--
	if k.by[one.key] = slices.Delete(k.by[one.key], i, i+1); len(k.by[one.key]) == 0 {
		delete(k.by, one.key)
	}
	return true
}

// forget removes the request that was answered first.
func (k *asking) forget() bool {
	var oldest *asked
	for _, all := range k.by {
		for _, one := range all {
			if one.waiting == 0 && !one.gone && (oldest == nil || one.left.Before(oldest.left)) {
				oldest = one
			}
		}
	}
	return oldest != nil && k.drop(oldest)
}

// lost calls find for a run from before the start of this process that has no retry yet.
func (k *asking) lost(look func(taken []toolcrib.RunID) (toolcrib.RunID, error)) (toolcrib.RunID, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	run, err := look(k.taken)
	if run != "" {
		k.taken = append(k.taken, run)
	}
	return run, err
}

// untake makes a run that could not be continued available to other retries.
func (k *asking) untake(run toolcrib.RunID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.taken = slices.DeleteFunc(k.taken, func(taken toolcrib.RunID) bool { return taken == run })
}

// renew restarts the window of a request, since its run was restarted.
func (k *asking) renew(one *asked) {
	k.mu.Lock()
	defer k.mu.Unlock()
	one.until = time.Time{}
}

// leave ends the wait for an answer. If the client does not return in time, abandon is called, unless the
// request has a key: then the client may return at any time. A repeated request for the result does not extend
// the window.
func (k *asking) leave(one *asked, retry, begun, gone, failed bool, abandon func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	one.waiting--
	one.taken = one.taken && !retry
	one.begun, one.sent = one.begun || begun, one.sent || !gone && !failed
	switch {
	case one.waiting > 0:
		return
	case !one.begun, one.sent && !one.keyed:
		k.drop(one)
		return
	}
	one.gone, one.left = gone && !one.keyed, time.Now()
	if one.gone || one.until.IsZero() {
		after := k.window
		if one.keyed || failed && !gone { // the run keeps its key longer
			after *= afterFailed
		}
		one.until = one.left.Add(after)
	}
	one.timer = time.AfterFunc(time.Until(one.until), func() {
		k.mu.Lock()
		gone := one.waiting == 0 && k.drop(one) && one.gone
		k.mu.Unlock()
		if gone {
			abandon()
		}
	})
}
