package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// maxReplyBytes bounds a reply, in addition to any bound of an adapter.
const maxReplyBytes = 32 << 20

// ask sends one request and records its outcome.
func (d *driver) ask(ctx context.Context, step core.Step) error {
	if stop, err := d.waitBefore(ctx, &step); stop || err != nil {
		return err
	}
	ctx = d.bounded(ctx)
	if stop, err := d.denied(ctx); stop || err != nil {
		return err
	}
	offered := d.s.Offer.Hash
	specs, hash, err := d.offer(ctx, step)
	if err != nil {
		if ctx.Err() != nil {
			return d.givenUp(ctx, context.Cause(ctx))
		}
		return err
	}
	if d.s.Offer.Hash != offered {
		// The offer has changed, and with it the possible cost of the request.
		notices := step.Notices
		if step = core.Next(d.s); step.Kind != core.StepAsk {
			return nil
		}
		step.Notices = notices // the wait is over
	}
	model, err := d.open(ctx, step.Model)
	if err != nil {
		// The core decides, as it does for a failed request.
		model = unopened{err}
		d.model = nil
	}
	left, stop, err := d.reserve(ctx, &step)
	if stop || err != nil {
		return err
	}
	req := core.BuildRequest(d.s, step, specs, hash)
	if d.s.HasFiles && d.s.Models[step.Model].Files != journal.FilesNone {
		req.Files = d.r.openFile
	}
	sent := d.request(step, left)
	sent.Closing, sent.OfferHash, sent.Choice = step.Closing, req.ToolsHash, req.ToolChoice
	sent.Hash = core.HashRequest(d.s, req)
	held := d.held
	if err := d.append(ctx, append(step.Notices, sent)...); errors.Is(err, journal.ErrUnread) {
		d.unread = true // so that listen reads the messages before the next attempt
		return d.rewind(ctx, err, held)
	} else if err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil { // the run was stopped meanwhile: nothing is sent
		err = &toolcrib.ModelError{Class: core.ClassCancelled, Message: err.Error(), Unsent: true, Err: err}
		return d.failed(ctx, sent, err, &toolcrib.ReplyBuilder{}, 0)
	}
	return d.receive(ctx, model, req, sent)
}

// request returns the event of a step's request. left is the output in tokens that the budgets of the
// user leave.
func (d *driver) request(step core.Step, left int64) *journal.ModelRequest {
	r := &step.Reserve
	return &journal.ModelRequest{
		Request: d.s.Requests + 1, Iteration: core.Rounds(d.s, step), Attempt: step.Attempt, Model: step.Model,
		ReservedInput: r.Input, ReservedOutput: r.Output, ReservedUSD: r.USD, MaxOutput: r.MaxOutput, UserLeft: left,
		DelayMS: step.Delay.Milliseconds(),
	}
}

// byPolicy marks a stop because of the user's current rights.
const byPolicy = "policy"

// denied stops a run whose user may no longer use its agent, before a model is asked (policy_denied).
func (d *driver) denied(ctx context.Context) (stop bool, err error) {
	start := d.s.Start
	refused, err := d.r.Gate.MayRun(ctx, start.Principal, start.Agent.Name)
	switch {
	case err != nil && ctx.Err() != nil:
		return true, d.givenUp(ctx, context.Cause(ctx))
	case err != nil:
		return true, err
	case refused == "":
		return false, nil
	}
	return true, d.append(ctx, &journal.Stopping{
		Reason: toolcrib.StopPolicyDenied, Message: d.r.Mask.Mask(refused),
		By: byPolicy,
	})
}

// byBudgets marks a stop because of the budgets of the user.
const byBudgets = "budgets"

// reserve reserves the possible cost of a step's request in the user's budgets, and bounds its output
// to what they leave, which it returns, or 0 if they do not bound it. stop means that the request is
// not sent, because the budgets or the limits of the session leave no room, or because the driver is
// ending.
func (d *driver) reserve(ctx context.Context, step *core.Step) (left int64, stop bool, err error) {
	if stop, err := d.sessionSpent(ctx); stop || err != nil {
		return 0, stop, err
	}
	if d.r.Ledger == nil {
		return 0, false, nil
	}
	// Settled requests count only once they are in the journal.
	if err := d.flush(ctx); err != nil {
		return 0, false, err
	}
	r := step.Reserve
	left, err = d.r.Ledger.Reserve(ctx, toolcrib.Reservation{
		Run: d.s.Run, Request: d.s.Requests + 1, User: d.s.Start.Principal.User,
		Tokens: r.Input + r.Output, Output: r.Output, CostUSD: r.USD, Price: d.s.Models[step.Model].Price,
		At: d.r.Clock.Now(),
	})
	var over *toolcrib.BudgetError
	if errors.As(err, &over) {
		return 0, true, d.append(ctx, &journal.Stopping{
			Reason: toolcrib.StopBudgetExhausted, Message: over.Error(),
			By: byBudgets,
		})
	}
	if err != nil && ctx.Err() != nil {
		return 0, true, d.givenUp(ctx, context.Cause(ctx))
	}
	if err != nil {
		return 0, false, fmt.Errorf("the budgets of %s: %w", d.s.Start.Principal.User, err)
	}
	if step.HoldTo(d.s, left); step.Reserve == r {
		left = 0
	}
	return left, false, nil
}

// givenUp returns the error with which a driver ends after its context has ended. It is nil if the run
// is to stop, because the next step does that.
func (d *driver) givenUp(ctx context.Context, err error) error {
	if d.s.Stopping != nil {
		return nil
	}
	if stop := d.stopped(ctx); stop != nil {
		return d.append(ctx, stop)
	}
	return err
}

// open opens the run's model with this index.
func (d *driver) open(ctx context.Context, index int) (toolcrib.Model, error) {
	info := d.modelInfo(index)
	if d.model != nil && d.index == index && d.tools == info.Tools {
		return d.model, nil
	}
	model, err := d.r.Models(ctx, info)
	if err != nil {
		return nil, err
	}
	if c, ok := model.(toolcrib.Conversational); ok {
		model = c.Conversation()
	}
	d.model, d.index, d.tools = model, index, info.Tools
	return model, nil
}

// modelInfo returns a model of the run as it is to be opened: one that turned out not to take tools is
// opened for the text protocol.
func (d *driver) modelInfo(index int) journal.ModelInfo {
	info := d.s.Models[index]
	if d.s.AsText[index] {
		info.Tools = journal.ToolsText
	}
	return info
}

// unopened is a model that could not be opened (no key, a bad address).
type unopened struct{ err error }

// Stream implements toolcrib.Model.
func (u unopened) Stream(context.Context, *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		var known *toolcrib.ModelError
		if errors.As(u.err, &known) {
			yield(toolcrib.Delta{}, u.err)
			return
		}
		yield(toolcrib.Delta{}, &toolcrib.ModelError{
			Class: toolcrib.ErrOther, Message: "the model could not be opened", Detail: u.err.Error(), Unsent: true, Err: u.err,
		})
	}
}

// receive receives the reply, shows it as it arrives, and records it as a whole.
func (d *driver) receive(ctx context.Context, model toolcrib.Model, req *toolcrib.Request,
	sent *journal.ModelRequest,
) error {
	in := &reception{d: d, began: d.r.Clock.Awake(), show: newDeltaView(d), what: "reply"}
	err := in.stream(ctx, model, req)
	in.show.flush()
	took := d.r.Clock.Awake() - in.began
	if err != nil {
		return d.failed(ctx, sent, err, &in.reply, took)
	}
	reply := in.reply.Reply()
	told := d.calledInText(sent, &reply)
	calls, repaired := d.adopt(&reply)
	leaks := d.redactCanary(&reply, calls)
	bodies := append(make([]toolcrib.Body, 0, 8), &journal.Message{
		Request: sent.Request, Iteration: sent.Iteration, Parts: reply.Message.Parts, Finish: reply.Finish.Reason,
		Model: d.r.redact(reply.Finish.Model), RequestID: d.r.redact(reply.Finish.RequestID), Closing: sent.Closing,
		DurationMS: took.Milliseconds(), FirstMS: in.first.Milliseconds(),
	})
	for i := range calls {
		calls[i].Iteration = sent.Iteration
		bodies = append(bodies, &calls[i])
	}
	bodies = append(bodies, d.settle(sent, &reply))
	bodies = append(append(append(bodies, leaks...), told...), repaired...)
	if d.s.AsksAgain(bodies[0].(*journal.Message)) {
		bodies = append(bodies, journal.Noticef(core.NoticeReplyEmpty, "the model gave neither text nor calls; it is asked once more"))
	}
	for _, n := range reply.Finish.Notices {
		n.Message = d.r.redact(n.Message)
		bodies = append(bodies, &journal.Notice{Notice: n})
	}
	if ignored := core.ChoiceIgnored(sent, calls); ignored != nil {
		bodies = append(bodies, ignored)
	}
	if first := d.s.Asked == nil || d.s.Asked.Model != sent.Model; first && !d.s.Models[sent.Model].Price.Known {
		bodies = append(bodies, journal.Noticef(core.NoticePriceUnknown, "no price is known for %s; its cost counts as 0",
			d.s.Models[sent.Model].Ref))
	}
	if len(calls) > 0 && d.logs(ctx) {
		d.r.Log.InfoContext(ctx, "executing tool calls", "run", string(d.s.Run), "iteration", sent.Iteration, "count",
			len(calls))
	}
	return d.hold(bodies...)
}

// reception is a reply that is being received.
type reception struct {
	d     *driver
	reply toolcrib.ReplyBuilder
	what  string        // "reply" or "summary", for messages
	show  *deltaView    // nil if there is no watcher
	began time.Duration // time of the clock
	first time.Duration // time to the first part of the answer
	ended bool
	err   error
}

// stream runs a model's stream. A panic of an adapter and an incomplete reply are errors like any
// other.
func (in *reception) stream(ctx context.Context, model toolcrib.Model, req *toolcrib.Request) error {
	req.Run = in.d.s.Run
	_, err := guard.Contain(func() (struct{}, error) {
		model.Stream(ctx, req)(in.take)
		return struct{}{}, nil
	})
	in.ended = true
	switch {
	case err != nil:
		return &toolcrib.ModelError{
			Class: toolcrib.ErrOther, Message: "the model's adapter failed", Detail: err.Error(), Err: err,
		}
	case in.err == nil && !in.reply.Finished():
		return &toolcrib.ModelError{Class: toolcrib.ErrNetwork, Message: "the " + in.what + " broke off before its end"}
	}
	return in.err
}

// take takes the next delta, and reports whether to continue.
func (in *reception) take(delta toolcrib.Delta, err error) bool {
	switch {
	case in.ended:
	case err != nil:
		in.err, in.ended = err, true
	default:
		if !in.reply.Started() {
			in.first = in.d.r.Clock.Awake() - in.began
		}
		in.reply.Add(delta)
		if in.reply.Bytes() > maxReplyBytes {
			in.ended = true
			in.err = &toolcrib.ModelError{
				Class:   toolcrib.ErrOther,
				Message: fmt.Sprintf("the reply is longer than %d MiB; it was given up", maxReplyBytes>>20),
			}
			break
		}
		in.show.delta(delta)
	}
	return !in.ended
}

// redact returns a provider's text for people. Its contents are unknown, so text that only looks like a
// secret is removed too.
func (r *Runner) redact(text string) string { return guard.RedactText(r.Mask.Clean(text)) }

// LogRequestFailed is the message of the log record of a failed request.
const LogRequestFailed = "model request failed"

// failed records a failed request.
func (d *driver) failed(ctx context.Context, sent *journal.ModelRequest, err error, b *toolcrib.ReplyBuilder,
	took time.Duration,
) error {
	m := &d.s.Models[sent.Model]
	f := &journal.ModelFailed{
		Request: sent.Request, Class: toolcrib.ErrOther, Provider: m.Provider,
		Message: "the request failed", OutputBegan: b.Started(), DurationMS: took.Milliseconds(), Sum: d.s.Usage,
	}
	var me *toolcrib.ModelError
	known := errors.As(err, &me)
	stop := d.stopped(ctx)
	switch {
	case stop != nil || ctx.Err() != nil:
		f.Class, f.Message = core.ClassCancelled, "given up by the run"
		f.Unsent = known && me.Unsent // the request was never sent
	case known:
		f.Class, f.Status, f.Message, f.Detail = me.Class, me.Status, d.r.redact(me.Message), d.r.redact(me.Detail)
		f.RetryAfterMS, f.Unsent, f.NoTools = me.RetryAfter.Milliseconds(), me.Unsent, me.NoTools
	default:
		f.Detail = d.r.redact(err.Error())
	}
	// Without a ref, all who read the run may read the message.
	if f.Detail != "" || known && f.Class != core.ClassCancelled && !me.Own {
		f.Ref = d.r.NewID("ref_")
		d.r.Log.WarnContext(ctx, LogRequestFailed, "run", d.s.Run, "user", d.s.Start.Principal.User, "class", f.Class,
			"ref", f.Ref, "detail", cmp.Or(f.Detail, f.Message)+d.r.redact(guard.Stack(err)))
	}
	if !f.Unsent {
		f.Sum.Requests++
		switch {
		case b.Started():
			// The size of the partial reply is known.
			partial := b.Reply()
			d.charge(f, sent, min(sent.ReservedOutput, core.EstimateReply(&partial)))
		case f.Class == core.ClassCancelled:
			// Cancelled before any output: at most the prompt was charged.
			d.charge(f, sent, 0)
		case (f.Class == toolcrib.ErrTimeout || f.Class == toolcrib.ErrNetwork) && !refused(f.Status):
			// Sent without an answer: the cost is unknown, so the whole reservation is charged. A
			// request that was refused outright costs nothing.
			d.charge(f, sent, sent.ReservedOutput)
		}
	}
	bodies := []toolcrib.Body{f}
	if stop != nil {
		bodies = append(bodies, stop)
	}
	if err := d.append(ctx, bodies...); err != nil {
		return err
	}
	if stop == nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// refused reports whether an HTTP status means that nothing was generated. 504 and 524 do not: a proxy
// gave up on a model that may still be working.
func refused(status int) bool {
	return status >= 400 && status != 504 && status != 524
}

// charge settles a request without a complete answer, as an estimate.
func (d *driver) charge(f *journal.ModelFailed, sent *journal.ModelRequest, output int64) {
	f.Charged = toolcrib.TokenUsage{InputTokens: sent.ReservedInput, OutputTokens: output}
	f.ChargedUSD = d.s.Models[sent.Model].Price.Cost(f.Charged)
	requests := f.Sum.Requests
	f.Sum = sumUsage(f.Sum, f.Charged, f.ChargedUSD, true)
	f.Sum.Requests = requests
}

// settleLost records the failure of a request that was open when its driver was lost.
func (d *driver) settleLost(ctx context.Context) error {
	sent := d.s.Open
	f := &journal.ModelFailed{
		Request: sent.Request, Class: core.ClassLost, Provider: d.s.Models[sent.Model].Provider,
		Message: "the driver of the run was lost before the reply was written down", Sum: d.s.Usage,
	}
	f.Sum.Requests++
	d.charge(f, sent, sent.ReservedOutput)
	return d.append(ctx, f)
}

// count returns the tokens as the provider reports them. Missing and impossible numbers are estimated:
// no request is empty, and a reply with content has used tokens.
func (d *driver) count(sent *journal.ModelRequest, reply *toolcrib.Reply) (u toolcrib.TokenUsage, estimated bool) {
	u = reply.Finish.Usage
	if !u.Reported || !plausible(u) {
		return toolcrib.TokenUsage{InputTokens: sent.ReservedInput, OutputTokens: core.EstimateReply(reply)}, true
	}
	if u.InputTokens == 0 && u.CostUSD == nil {
		u.InputTokens, estimated = sent.ReservedInput, true
	}
	if u.OutputTokens == 0 && u.CostUSD == nil && len(reply.Message.Parts) > 0 {
		u.OutputTokens, estimated = core.EstimateReply(reply), true
	}
	return u, estimated
}

// plausible reports whether reported tokens are possible, so that NaN and the like cannot evade a
// budget.
func plausible(u toolcrib.TokenUsage) bool {
	const most = 1 << 30
	for _, n := range []int64{u.InputTokens, u.CachedInputTokens, u.CacheWriteTokens, u.OutputTokens, u.ReasoningTokens} {
		if n < 0 || n > most {
			return false
		}
	}
	return u.CachedInputTokens+u.CacheWriteTokens <= u.InputTokens &&
		(u.CostUSD == nil || *u.CostUSD >= 0 && *u.CostUSD < 1e6)
}

// settle returns the usage of a reply.
func (d *driver) settle(sent *journal.ModelRequest, reply *toolcrib.Reply) *journal.Usage {
	tokens, estimated := d.count(sent, reply)
	price := d.s.Models[sent.Model].Price
	cost := price.Cost(tokens)
	return &journal.Usage{
		Request: sent.Request, Tokens: tokens, CostUSD: cost, Estimated: estimated,
		Sum: sumUsage(d.s.Usage, tokens, cost, estimated || !price.Known && tokens.CostUSD == nil),
	}
}

// sumUsage adds one request.
func sumUsage(sum toolcrib.Usage, t toolcrib.TokenUsage, cost float64, estimated bool) toolcrib.Usage {
	return sum.Plus(toolcrib.Usage{
		Requests: 1, InputTokens: t.InputTokens, CachedInputTokens: t.CachedInputTokens, CacheWriteTokens: t.CacheWriteTokens,
		OutputTokens: t.OutputTokens, ReasoningTokens: t.ReasoningTokens, TotalTokens: t.InputTokens + t.OutputTokens,
		CostUSD: cost, Estimated: estimated,
	})
}

// deltaView shows the deltas of a reply in the form in which it is kept: cleaned and with secrets masked,
// even those split over deltas.
type deltaView struct {
	d              *driver
	unseen         []toolcrib.Delta // received without a watcher; the next watcher is shown them
	text, thinking pipe             // nil if nothing was shown yet
	shown          map[string]int   // bytes shown, by event
	last           string           // the event shown last
	over           map[string]bool  // events whose end was shown, although more may come
	calls          map[int]*shownCall
	ids            *callIDs
}

type shownCall struct {
	id     string
	args   pipe
	silent bool // no part of the arguments has come
}

// pipe writes a text that arrives in pieces through several streams in turn.
type pipe []interface {
	Write(piece string) string
	Flush() string
}

func (p pipe) Write(piece string) string {
	for _, s := range p {
		piece = s.Write(piece)
	}
	return piece
}

func (p pipe) Flush() (rest string) {
	for _, s := range p {
		rest = s.Write(rest) + s.Flush()
	}
	return rest
}

func newDeltaView(d *driver) *deltaView {
	if d.r.Watch == nil {
		return nil
	}
	w := &deltaView{d: d, unseen: d.unseen[:0]}
	d.unseen = nil
	return w
}

// maxUnseen bounds the deltas that are held while there is no watcher.
const maxUnseen = 1000

// seen reports whether deltas are shown. It first shows those that were held until now.
func (w *deltaView) seen() bool {
	if w == nil || w.d.r.Watched != nil && len(w.unseen) < maxUnseen && !w.d.r.Watched(w.d.s.Run) {
		return false
	}
	if w.text == nil {
		mask := w.d.r.Mask
		w.text = pipe{&guard.CleanStream{}, mask.Stream(), guard.NewCanaryStream(w.d.s.Canary())}
		w.thinking = pipe{&guard.CleanStream{}, mask.Stream()}
		w.over, w.shown, w.ids = map[string]bool{}, map[string]int{}, newIDs(w.d.s.IDs, w.d.r.Mask)
	}
	held := w.unseen
	w.unseen = nil
	for _, delta := range held {
		w.add(delta)
	}
	return true
}

func (w *deltaView) delta(delta toolcrib.Delta) {
	switch {
	case w.seen():
		w.add(delta)
	case w != nil && delta.ToolCall != nil:
		call := *delta.ToolCall // delta.ToolCall is the model's
		delta.ToolCall = &call
		fallthrough
	case w != nil && (delta.Text != "" || delta.Thinking != ""):
		w.unseen = append(w.unseen, delta)
	}
}

func (w *deltaView) add(delta toolcrib.Delta) {
	switch {
	case delta.Text != "" && w.begins(journal.FrameToken):
		w.show(journal.FrameToken, w.text.Write(delta.Text))
	case delta.Thinking != "" && w.begins(journal.FrameThinking):
		w.show(journal.FrameThinking, w.thinking.Write(delta.Thinking))
	case delta.ToolCall != nil && w.begins(journal.FrameToolCallDelta):
		w.call(delta.ToolCall)
	}
}

// begins finishes showing the pieces of one kind before the first of another: a thought ends before
// the text begins. It reports whether the piece may be shown. A kind of which a held-back end was
// shown is not continued, since a secret may have been cut in two there; the message has the rest.
func (w *deltaView) begins(event string) bool {
	if w.last != event {
		rest := ""
		switch w.last {
		case journal.FrameToken:
			rest = w.text.Flush()
		case journal.FrameThinking:
			rest = w.thinking.Flush()
		}
		w.show(w.last, rest)
		w.over[w.last] = w.over[w.last] || rest != ""
		w.last = event
	}
	return !w.over[event]
}

func (w *deltaView) show(event, text string) {
	if text != "" {
		w.d.live(event, journal.TextView{Text: text, From: w.shown[event]})
		w.shown[event] += len(text)
	}
}

func (w *deltaView) call(c *toolcrib.ToolCallDelta) {
	k, view := w.calls[c.Index], journal.CallDeltaView{}
	if k == nil {
		if w.calls == nil {
			w.calls = make(map[int]*shownCall)
		}
		// The ID shown is the call's final one.
		shown := toolcrib.ToolCall{ID: c.ID, Name: c.Name}
		w.ids.give(&shown)
		giveName(&shown, w.d.s.Offering(), w.d.r.Mask)
		args := pipe{w.d.r.Mask.ArgumentStream(), guard.NewCanaryStream(w.d.s.Canary())}
		k = &shownCall{id: shown.ID, args: args, silent: true}
		w.calls[c.Index], view.Name = k, shown.Name
	}
	k.silent = k.silent && strings.TrimSpace(c.Arguments) == ""
	if view.ID, view.ArgumentsDelta = k.id, k.args.Write(c.Arguments); view.Name != "" || view.ArgumentsDelta != "" {
		w.d.live(journal.FrameToolCallDelta, view)
	}
}

func (w *deltaView) flush() {
	if !w.seen() {
		if w != nil {
			clear(w.unseen)
			w.d.unseen = w.unseen
		}
		return
	}
	w.begins("")
	for _, k := range w.calls {
		rest := k.args.Flush()
		if k.silent {
			rest = string(canonicalEmpty) // joined, the deltas are the arguments (N13)
		}
		if rest != "" {
			w.d.live(journal.FrameToolCallDelta, journal.CallDeltaView{ID: k.id, ArgumentsDelta: rest})
		}
	}
}
