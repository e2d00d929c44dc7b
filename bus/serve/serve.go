// Package serve offers tools, commands and agents to other nodes of the bus, as bus.offers says. Each call becomes a
// run of this node whose principal is the node that signed the call. The run passes the gate, counts against
// budgets, and is in the journal before it has an effect. A call that is repeated with its ID joins that run.
//
// The arguments of a tool or command are the input and the params of the call:
//
//	{"params": {"corpus": "notes"}, "input": {"query": "rain", "k": 5}}
//
// Its result is the JSON that it returns, or its text as a JSON string. An agent gets {"input": {"task": "…"}} and
// returns {content, run_id, status, stop_reason, truncated, usage}; in such runs it has the tools that
// agents.NAME.tools lists, and none if there is no list. llm.chat has the form of HearthNet's capability contract;
// see [Chat]. A call that waits for a person sends the frame confirmation_required {approval_id, run_id, kind}, and
// ends with timeout if no decision is made in time; repeated after the decision, it gets the result.
package serve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/nodes"
	"github.com/toolcrib/toolcrib/service/worker"
)

// Options configure [Offer].
type Options struct {
	Service func() *service.Service // under the configuration in effect
	Pool    *service.Pool           // drives the runs; its node has the offers
	Log     *slog.Logger            // if nil, nothing is logged
}

// front serves calls.
type front struct{ Options }

// Offers are the capabilities that the node of a pool offers.
type Offers struct {
	*front
	mu   sync.Mutex
	made map[bus.Name]string // the offered capabilities, as JSON for comparison
}

// capability is a capability to offer.
type capability struct {
	bus.Descriptor
	grants []string
	serve  nodes.Serve
}

// Offer offers the capabilities of the configuration until the node of the pool is closed.
func Offer(o Options) (*Offers, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &Offers{front: &front{o}, made: map[bus.Name]string{}}
	if err := o.Pool.Node().Offer(callDescriptor(), nil, f.callTool); err != nil {
		return nil, err
	}
	return f, f.Renew()
}

// Renew updates the offers to the configuration in effect. Calls in flight continue.
func (f *Offers) Renew() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	offers, err := f.Service().Nodes.Offers()
	if err != nil {
		return err
	}
	node, old := f.Pool.Node(), f.made
	var changed []capability
	f.made = map[bus.Name]string{}
	for i := range offers {
		for _, c := range f.capabilities(&offers[i]) {
			of, err := json.Marshal([]any{c.Descriptor, c.grants, offers[i].Agent})
			if err != nil {
				return err
			}
			if f.made[c.Name] = string(of); old[c.Name] != string(of) {
				changed = append(changed, c)
			}
		}
	}
	for name := range old {
		if f.made[name] != old[name] {
			node.Withdraw(name)
		}
	}
	var failed []error
	for _, c := range changed {
		if err := node.Offer(c.Descriptor, c.grants, c.serve); err != nil {
			delete(f.made, c.Name)
			failed = append(failed, fmt.Errorf("bus.offers.%s: %w", c.Name, err))
		}
	}
	f.Service().Bus.Renew()
	return errors.Join(failed...)
}

// capabilities returns the capabilities of an entry of bus.offers.
func (f *front) capabilities(o *nodes.Offer) []capability {
	d := o.Descriptor
	d.Joins = true
	switch name := o.Tool + o.Command; {
	case name != "":
		known, err := f.Service().Policy.Tool(context.Background(), toolcrib.Principal{User: standing.NodePrefix}, name)
		if err != nil { // it may come later
			f.Log.Warn("the tool of an offer is missing now", "capability", d.Name.String(), "error", err)
		}
		d.Effect = known.Effect.OrStrictest()
		d.Description = cmp.Or(d.Description, known.Description)
		return []capability{{d, []string{name}, f.tool(name)}}
	case d.Name.Name == chatName:
		return f.chats(d, o.Agent)
	}
	f.agentTime(&d)
	c := f.Service().Env
	def, err := c.Config.Agent(o.Agent, c.Resolver())
	if err != nil { // its runs will say so
		f.Log.Warn("the agent of an offer cannot be used now", "capability", d.Name.String(), "error", err)
	}
	return []capability{{d, append(slices.Clone(def.Tools), "agent:"+o.Agent), f.agent(o.Agent)}}
}

// agentTimeout is the default timeout of offers of agents.
const agentTimeout = 15 * time.Minute

func (f *front) agentTime(d *bus.Descriptor) {
	if !f.Service().Env.Config.IsSet(config.JoinKey("bus.offers", d.Name.String()) + ".timeout") {
		d.Timeout = agentTimeout
	}
}

// served is a call with its run.
type served struct {
	*front
	who   toolcrib.Principal
	x     *bus.Exchange
	run   toolcrib.RunID
	after toolcrib.Seq // the answer begins after this event
	sub   *worker.Subscription
	leave func() // forgets that the run serves the call
}

// begin starts the run of a call, or finds it if the call is repeated.
func (f *front) begin(
	ctx context.Context, who toolcrib.Principal, x *bus.Exchange, r service.StartRequest,
) (*served, error) {
	s := f.Service()
	r.Approve, r.Subscription = agent.ApproveNone, &worker.Subscription{}
	if err := f.admit(x, r.Agent); err != nil {
		return nil, err
	}
	var err error
	if r.Workspace, err = s.Policy.OwnWorkspace(who); err != nil {
		return nil, err
	}
	r.Once = service.Once(who, "bus:"+x.ID, string(x.Caller.Node), x.Name.String(), string(x.Body))
	r.Notice = func(text string) { f.Log.Info("a call of another node", "capability", x.Name.String(), "notice", text) }
	leave := s.Bus.Serve(r.Once, x) // before it makes calls of its own
	drive, err := f.Pool.Start(context.WithoutCancel(ctx), who, r)
	if err != nil {
		leave()
		r.Subscription.Close()
		return nil, err
	}
	first := x.Caller.Lineage[0]
	f.Log.Info("a call of another node", "capability", x.Name.String(), "run", drive.ID(), "user", who.User, "id", x.ID,
		"from_node", first.Node, "from_agent", first.Agent, "from_run", first.Run)
	return &served{front: f, who: who, x: x, run: drive.ID(), sub: r.Subscription, leave: leave}, nil
}

// admit returns an error if the call is nested deeper than the agent's limits.max_depth, counted across nodes.
func (f *front) admit(x *bus.Exchange, name string) error {
	c := f.Service()
	def, err := c.Env.Config.Agent(name, c.Env.Resolver())
	if err == nil && len(x.Caller.Lineage) > def.Limits.MaxDepth {
		err = toolcrib.Errorf(toolcrib.CodeBadRequest,
			"depth_exceeded: this is %d calls deep, and limits.max_depth is %d", len(x.Caller.Lineage), def.Limits.MaxDepth)
	}
	return err
}

// follow calls each for the frames of the run until the run ends or each returns an error. If the caller cancels the
// call, the run is canceled.
func (v *served) follow(ctx context.Context, each func(journal.Frame) error) error {
	defer v.sub.Close()
	asked := ""
	err := v.Pool.Follow(ctx, v.who, worker.Follow{Run: string(v.run), Subscription: v.sub, After: v.after},
		func(frame journal.Frame) error {
			p, ok := frame.Data.(*journal.Paused)
			if ok && p.Pending.ApprovalID != "" && p.Pending.ApprovalID != asked {
				asked = p.Pending.ApprovalID
				c := confirmation{asked, v.run, p.Pending.Kind, p.Pending.Question}
				return v.send(ctx, journal.KindConfirmationRequired, c)
			}
			return each(frame)
		})
	if err != nil && ctx.Err() != nil {
		return v.left(ctx)
	}
	return err
}

// confirmation is the data of the frame confirmation_required.
type confirmation struct {
	Approval string         `json:"approval_id"`
	Run      toolcrib.RunID `json:"run_id"`
	Kind     string         `json:"kind"`
	Question string         `json:"question,omitempty"`
}

// stopTime bounds how long a run is canceled.
const stopTime = 5 * time.Second

// left cancels the run of a call that has ended early, unless the caller was lost or may repeat the call.
func (v *served) left(ctx context.Context) error {
	cause := context.Cause(ctx)
	switch code := toolcrib.CodeOf(cause); {
	case code == toolcrib.CodePartition, code == toolcrib.CodeOverloaded:
		return cause
	case errors.Is(cause, context.DeadlineExceeded):
		run, err := v.Service().FindRun(context.WithoutCancel(ctx), v.who, string(v.run))
		if err != nil || run.Status.Parked() || run.Status.Ended() {
			return cause
		}
	}
	v.cancel(ctx)
	return cause
}

// cancel ends the run.
func (v *served) cancel(ctx context.Context) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer stop()
	if _, err := v.Pool.Cancel(ctx, v.who, string(v.run)); err != nil && toolcrib.CodeOf(err) != toolcrib.CodeConflict {
		v.Log.Warn("the run of a canceled call was not ended", "run", v.run, "error", err)
	}
}

func (v *served) send(ctx context.Context, event toolcrib.Kind, data any) error {
	raw, err := json.Marshal(data)
	if err == nil {
		err = v.x.Send(ctx, bus.Frame{Event: string(event), Data: raw})
	}
	return err
}

// tool serves calls of a tool.
func (f *front) tool(name string) nodes.Serve {
	return func(ctx context.Context, who toolcrib.Principal, x *bus.Exchange) (json.RawMessage, error) {
		arguments, err := argumentsOf(x.Body)
		if err != nil {
			return nil, err
		}
		v, err := f.begin(ctx, who, x, service.StartRequest{Given: f.Service().Policy.GivenCall(name, arguments)})
		if err != nil {
			return nil, err
		}
		defer v.leave()
		if err := v.follow(ctx, func(journal.Frame) error { return nil }); err != nil {
			return nil, err
		}
		run, err := f.Service().Run(ctx, who, string(v.run))
		if err != nil {
			return nil, err
		}
		if len(run.Trace) == 0 || run.Trace[0].Status == "" {
			return nil, toolcrib.Errorf(toolcrib.CodeInternal, "run %s has no result (%s)", run.ID, run.StopReason)
		}
		t := &run.Trace[0]
		content := bare(t.Result)
		if code := codeOf(t.Status, t.IsError, t.Reason); code != "" {
			message, ref := told(content)
			return nil, &toolcrib.Error{Code: code, Message: message, Ref: cmp.Or(ref, string(run.ID))}
		}
		if strings.HasPrefix(content, "{") || strings.HasPrefix(content, "[") {
			if raw, err := guard.Canonical([]byte(content)); err == nil {
				return raw, nil
			}
		}
		return json.Marshal(content)
	}
}

// bare returns a result without the marks for models.
func bare(content string) string {
	if inside, ok := guard.Unfence(content); ok {
		return guard.WithoutCanary(inside)
	}
	return content
}

// told returns the message and the reference, if any, of an error result: {"error", "ref"}, a [guard.Refusal], or
// the output of a tool, which is the message.
func told(content string) (message, ref string) {
	var fields map[string]json.RawMessage
	var r struct {
		Refused             bool
		Error, Message, Ref string
	}
	raw := []byte(content)
	if json.Unmarshal(raw, &fields) != nil || json.Unmarshal(raw, &r) != nil {
		return content, ""
	}
	switch {
	case r.Refused && r.Message != "":
		return r.Message, r.Ref
	case r.Error != "" && len(fields) == 1, r.Error != "" && r.Ref != "" && len(fields) == 2:
		return r.Error, r.Ref
	}
	return content, ""
}

// codeOf returns the code of an error result, or "".
func codeOf(status toolcrib.ResultStatus, isError bool, reason toolcrib.Reason) toolcrib.Code {
	switch {
	case status == toolcrib.ResultOK && !isError:
		return ""
	case reason == toolcrib.ReasonInvalidArguments:
		return toolcrib.CodeBadRequest
	case status == toolcrib.ResultRefused:
		return toolcrib.CodeForbidden
	case status == toolcrib.ResultTimeout:
		return toolcrib.CodeTimeout
	case status == toolcrib.ResultCancelled:
		return toolcrib.CodeConflict
	case status == toolcrib.ResultInDoubt:
		return toolcrib.CodePartition
	}
	return toolcrib.CodeInternal
}

// decode decodes the body of a call. Unknown fields are errors.
func decode(body json.RawMessage, to any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(to)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "%s: has the wrong type: %s", wrong.Field, wrong.Value)
	case err != nil:
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "%s", guard.Clip(strings.TrimPrefix(err.Error(), "json: "), 256))
	}
	return nil
}

// envelope is the body of a call.
type envelope struct {
	Params map[string]json.RawMessage `json:"params"`
	Input  json.RawMessage            `json:"input"`
}

// argumentsOf returns the arguments of a tool: the input and the params of a call.
func argumentsOf(body json.RawMessage) (json.RawMessage, error) {
	var e envelope
	arguments := map[string]json.RawMessage{}
	err := json.Unmarshal(body, &e)
	if err == nil && len(e.Input) > 0 && string(e.Input) != "null" {
		err = json.Unmarshal(e.Input, &arguments)
	}
	if err != nil {
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "the input of the call must be an object, and its params too")
	}
	for name, value := range e.Params {
		if _, twice := arguments[name]; twice {
			return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "%+q is in the params and in the input", guard.Clip(name, 64))
		}
		arguments[name] = value
	}
	return json.Marshal(arguments)
}

// task is the input of an agent.
type task struct {
	Input struct {
		Task string `json:"task"`
	} `json:"input"`
}

// answered is the result of an agent.
type answered struct {
	Content    string              `json:"content"`
	Run        toolcrib.RunID      `json:"run_id"`
	Status     toolcrib.Status     `json:"status"`
	StopReason toolcrib.StopReason `json:"stop_reason"`
	Truncated  bool                `json:"truncated"`
	Usage      toolcrib.Usage      `json:"usage"`
}

// agent serves tasks for an agent.
func (f *front) agent(name string) nodes.Serve {
	return func(ctx context.Context, who toolcrib.Principal, x *bus.Exchange) (json.RawMessage, error) {
		var in task
		if err := json.Unmarshal(x.Body, &in); err != nil || strings.TrimSpace(in.Input.Task) == "" {
			return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "the input of the call must be {task}, a text")
		}
		v, err := f.begin(ctx, who, x, service.StartRequest{Agent: name, Prompt: in.Input.Task})
		if err != nil {
			return nil, err
		}
		defer v.leave()
		var out *answered
		err = v.follow(ctx, func(frame journal.Frame) error {
			switch d := frame.Data.(type) {
			case journal.TextView:
				if frame.Event == journal.FrameToken {
					return v.send(ctx, journal.FrameToken, d)
				}
			case *journal.Paused:
				return waits(d)
			case journal.DoneView:
				out = &answered{d.Content, d.RunID, d.Status, d.StopReason, d.Truncated, d.Usage}
			case journal.ErrorView:
				return failed(&d)
			}
			return nil
		})
		switch {
		case err != nil:
			return nil, err
		case out == nil:
			return nil, toolcrib.Errorf(toolcrib.CodeInternal, "run %s has no outcome", v.run)
		case out.Status == toolcrib.StatusCancelled:
			return nil, toolcrib.Errorf(toolcrib.CodeConflict, "run %s was cancelled", v.run)
		}
		return json.Marshal(out)
	}
}

// waits returns the error of a run that waits for its provider.
func waits(p *journal.Paused) error {
	if p.Pending.Kind != journal.PendingProvider {
		return nil
	}
	why := "the model is not available"
	if e := p.Pending.Error; e != nil {
		why = string(e.Class) + ": the model is not available"
	}
	return toolcrib.Errorf(toolcrib.CodeProviderFailed, "%s", why)
}

// failed returns the error of a run that has failed.
func failed(e *journal.ErrorView) error {
	code := toolcrib.CodeInternal
	switch e.StopReason {
	case toolcrib.StopProviderFailed, toolcrib.StopContextLength:
		code = toolcrib.CodeProviderFailed
	case toolcrib.StopPolicyDenied, toolcrib.StopApprovalDenied:
		code = toolcrib.CodeForbidden
	}
	message := string(e.StopReason)
	if e.Class != "" {
		message += ": " + string(e.Class)
	}
	return &toolcrib.Error{Code: code, Message: fmt.Sprintf("%s (run %s)", message, e.RunID), Ref: string(e.RunID)}
}
