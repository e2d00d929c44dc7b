package telemetry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// The IDs of a run's spans are derived from those of the journal: they belong together even if several
// processes drive the run, and a span that two of them create is the same.

// traceOf returns the ID of the trace of a run tree.
func traceOf(top toolcrib.RunID) (id trace.TraceID) {
	sum := sha256.Sum256([]byte("trace\x00" + top))
	copy(id[:], sum[:])
	return id
}

func spanOf(run toolcrib.RunID, what ...string) (id trace.SpanID) {
	sum := sha256.Sum256([]byte("span\x00" + string(run) + "\x00" + strings.Join(what, "\x00")))
	copy(id[:], sum[:])
	return id
}

// maxDepth bounds the ancestors of a run that are read.
const maxDepth = 16

// traced is the span of an unfinished run. Span is nil if it was not begun.
type traced struct {
	trace.Span
	top toolcrib.RunID
	ctx context.Context // context for its child spans
}

// failed marks a span as failed. kind must be from a small set.
func failed(s trace.Span, kind, text string) {
	s.SetAttributes(semconv.ErrorTypeKey.String(kind))
	s.SetStatus(codes.Error, text)
}

// trace creates spans for an event.
func (r *run) trace(ctx context.Context, j toolcrib.Journal, e toolcrib.Event) {
	if b, ok := e.Body.(*journal.RunStarted); ok {
		r.begins(ctx, j, b)
	}
	if r.traced.Span == nil {
		return
	}
	switch b := e.Body.(type) {
	case *journal.ModelFailed:
		if r.request != nil {
			r.chatFailed(e.Time, b)
		}
	case *journal.Usage:
		if r.request != nil {
			r.chatted(e.Time, b)
		}
	case *journal.Verdicts:
		r.judged(e.Time, b)
	case *journal.ConfirmationResolved:
		if r.answers(b) {
			r.answered(e.Time, b)
		}
	case *journal.ToolStarted:
		if c := r.calls[b.ID]; c != nil {
			r.executes(c, true)
		}
	case *journal.ToolResult:
		if c := r.calls[b.ToolCallID]; c != nil {
			r.executed(e.Time, c, b)
		}
	case *journal.Paused:
		r.traced.AddEvent("paused", trace.WithTimestamp(e.Time), trace.WithAttributes(keyStatus.String(string(b.Status))))
	case *journal.Done:
		if t := r.o.Traces; t.content {
			reply := toolcrib.TextMessage(toolcrib.RoleAssistant, b.Content)
			r.traced.SetAttributes(t.text(semconv.GenAIOutputMessagesKey, messages([]toolcrib.Message{reply})))
		}
		r.over(e.Time, b.Status, b.StopReason, b.Iterations, b.Usage)
	case *journal.Error:
		failed(r.traced, b.Code, r.o.Traces.why(b.Code, b.Message))
		if b.Ref != "" {
			r.traced.SetAttributes(keyRef.String(b.Ref))
		}
		r.over(e.Time, b.Status, b.StopReason, b.Iterations, b.Usage)
	}
}

// end sends a span, unless it was sent when it happened.
func (r *run) end(s trace.Span, at time.Time) {
	if !r.past {
		s.End(trace.WithTimestamp(at))
	}
}

// begins begins the span of a run. It is sent when the run ends, even by another process.
func (r *run) begins(ctx context.Context, j toolcrib.Journal, b *journal.RunStarted) {
	t := r.o.Traces
	r.traced.top = r.id
	above := trace.SpanContext{}
	if b.Parent != "" {
		r.traced.top = r.o.topOf(ctx, j, b.Parent)
		parent := spanOf(b.Parent)
		r.o.mu.Lock()
		if by, ok := r.o.calledBy[r.id]; ok {
			parent = spanOf(by.run, "call", by.call)
		}
		r.o.mu.Unlock()
		above = t.context(traceOf(r.traced.top), parent)
	}
	attributes := []attribute.KeyValue{
		semconv.GenAIOperationNameInvokeAgent, semconv.GenAIAgentName(b.Agent.Name), keyRun.String(string(r.id)),
		semconv.UserID(b.Principal.User),
	}
	if b.Session != "" {
		attributes = append(attributes, semconv.GenAIConversationID(string(b.Session)))
	}
	if b.Parent != "" {
		attributes = append(attributes, keyParent.String(string(b.Parent)))
	}
	if len(b.Models) > 0 {
		attributes = append(attributes, asked(&b.Models[0])...)
	}
	if t.content {
		attributes = append(attributes, t.text(semconv.GenAIInputMessagesKey, messages(b.Input)))
		if b.System != "" {
			attributes = append(attributes, t.text(semconv.GenAISystemInstructionsKey, parts([]toolcrib.Part{{Text: b.System}})))
		}
	}
	r.traced.ctx, r.traced.Span = t.start(trace.ContextWithRemoteSpanContext(context.Background(), above),
		opAgent+" "+b.Agent.Name, trace.SpanKindInternal, traceOf(r.traced.top), spanOf(r.id), r.began, attributes)
}

// topOf returns the topmost run above a run.
func (o *Observer) topOf(ctx context.Context, j toolcrib.Journal, id toolcrib.RunID) toolcrib.RunID {
	for range maxDepth {
		o.mu.Lock()
		known := o.runs[id]
		o.mu.Unlock()
		if known != nil && known.traced.top != "" {
			return known.traced.top
		}
		above := toolcrib.RunID("")
		for e, err := range j.Read(ctx, id, 0) {
			if b, ok := e.Body.(*journal.RunStarted); ok && err == nil {
				above = b.Parent
			}
			break
		}
		if above == "" {
			return id
		}
		id = above
	}
	return id
}

// span creates a child of the run's span.
func (r *run) span(name string, kind trace.SpanKind, id trace.SpanID, from time.Time,
	attributes ...attribute.KeyValue,
) trace.Span {
	attributes = append(attributes, keyRun.String(string(r.id)), semconv.GenAIAgentName(r.agent))
	_, s := r.o.Traces.start(r.traced.ctx, name, kind, trace.TraceID{}, id, from, attributes)
	return s
}

// asked returns the attributes of the requested model.
func asked(m *journal.ModelInfo) []attribute.KeyValue {
	return []attribute.KeyValue{semconv.GenAIRequestModel(m.ID), semconv.GenAIProviderNameKey.String(m.Provider)}
}

// spent returns the attributes of usage.
func spent(input, cached, output int64, cost float64, estimated bool) []attribute.KeyValue {
	return []attribute.KeyValue{
		semconv.GenAIUsageInputTokens(int(input)), semconv.GenAIUsageCacheReadInputTokens(int(cached)),
		semconv.GenAIUsageOutputTokens(int(output)), keyCost.Float64(cost), keyEstimated.Bool(estimated),
	}
}

// chat creates the span of the current request.
func (r *run) chat() trace.Span {
	q, m := r.request, r.model()
	s := r.span(opChat+" "+m.ID, trace.SpanKindClient,
		spanOf(r.id, "chat", strconv.Itoa(q.Request), strconv.Itoa(q.Model), strconv.Itoa(q.Attempt)), r.sent,
		append(asked(&m), semconv.GenAIOperationNameChat,
			semconv.GenAIRequestStream(true), keyRequest.Int(q.Request), keyAttempt.Int(q.Attempt))...)
	if q.MaxOutput > 0 {
		s.SetAttributes(semconv.GenAIRequestMaxTokens(q.MaxOutput))
	}
	return s
}

func (r *run) chatted(at time.Time, b *journal.Usage) {
	s := r.chat()
	n := &b.Tokens
	s.SetAttributes(spent(n.InputTokens, n.CachedInputTokens, n.OutputTokens, b.CostUSD, b.Estimated)...)
	s.SetAttributes(semconv.GenAIUsageCacheCreationInputTokens(int(n.CacheWriteTokens)),
		semconv.GenAIUsageReasoningOutputTokens(int(n.ReasoningTokens)))
	if m := r.reply; m != nil {
		at = r.replied
		s.SetAttributes(semconv.GenAIResponseFinishReasons(string(m.Finish)))
		if m.Model != "" {
			s.SetAttributes(semconv.GenAIResponseModel(m.Model))
		}
		if m.RequestID != "" {
			s.SetAttributes(semconv.GenAIResponseID(m.RequestID))
		}
		if m.FirstMS > 0 {
			s.SetAttributes(semconv.GenAIResponseTimeToFirstChunk(float64(m.FirstMS) / 1000))
		}
		if t := r.o.Traces; t.content {
			said := []toolcrib.Message{{Role: toolcrib.RoleAssistant, Parts: m.Parts}}
			s.SetAttributes(t.text(semconv.GenAIOutputMessagesKey, messages(said)))
		}
	}
	r.end(s, at)
}

func (r *run) chatFailed(at time.Time, b *journal.ModelFailed) {
	s := r.chat()
	failed(s, string(b.Class), r.o.Traces.why(string(b.Class), b.Message))
	if b.Ref != "" {
		s.SetAttributes(keyRef.String(b.Ref))
	}
	r.end(s, at)
}

// executes begins the span of a call. If the call did not run, its name is arbitrary text of a model,
// which is not used as the name of the span.
func (r *run) executes(c *call, ran bool) {
	name, t := opTool, r.o.Traces
	if ran {
		name += " " + c.Name
	}
	c.span = r.span(name, trace.SpanKindInternal, spanOf(r.id, "call", c.ID), c.began,
		semconv.GenAIOperationNameExecuteTool, t.label(semconv.GenAIToolNameKey, c.Name),
		t.label(semconv.GenAIToolCallIDKey, c.ID), semconv.GenAIToolType("function"))
	if t.content {
		c.span.SetAttributes(t.text(semconv.GenAIToolCallArgumentsKey, string(c.Arguments)))
	}
}

// executed ends the span of a call, including a refused one.
func (r *run) executed(at time.Time, c *call, b *journal.ToolResult) {
	took := time.Duration(b.DurationMS) * time.Millisecond
	if c.began.IsZero() {
		c.began = at.Add(-took)
		r.executes(c, false)
	} else if ended := c.began.Add(took); took > 0 && ended.Before(at) {
		at = ended // the result waited for earlier results
	}
	c.span.SetAttributes(keyResulted.String(string(b.Status)))
	if b.Status != toolcrib.ResultOK {
		kind := cmp.Or(string(b.Reason), string(b.Status))
		failed(c.span, kind, kind)
	}
	if b.FaultRef != "" {
		c.span.SetAttributes(keyRef.String(b.FaultRef))
	}
	if t := r.o.Traces; t.content {
		c.span.SetAttributes(t.text(semconv.GenAIToolCallResultKey, b.Content))
	}
	r.end(c.span, at)
}

// judged creates the spans of verdicts. The span of a question ends with its answer.
func (r *run) judged(at time.Time, b *journal.Verdicts) {
	for i := range b.Verdicts {
		v := &b.Verdicts[i]
		if v.Decision == toolcrib.Ask || b.Again && v.Decision == toolcrib.Allow {
			continue
		}
		s, decision := r.decision(v.Tool, v.CallID, at), "refuse"
		if v.Decision == toolcrib.Allow {
			decision = "allow"
		}
		s.SetAttributes(keyDecision.String(decision))
		if v.Decision != toolcrib.Allow {
			s.SetAttributes(keyReason.String(string(v.Reason)), keyLayer.String(layerOf(v.Reason)))
		}
		if v.Rule != "" {
			s.SetAttributes(keyRule.String(v.Rule))
		}
		if v.ApprovedBy != "" {
			s.SetAttributes(keyBy.String(v.ApprovedBy), keyApproval.String(v.Approval))
		}
		r.end(s, at)
	}
}

func (r *run) decision(tool, callID string, from time.Time) trace.Span {
	t := r.o.Traces
	return r.span("decide", trace.SpanKindInternal,
		spanOf(r.id, "decide", callID, strconv.FormatInt(from.UnixMicro(), 10)), from,
		t.label(semconv.GenAIToolNameKey, tool), t.label(semconv.GenAIToolCallIDKey, callID))
}

// answered creates the spans of a person's decisions.
func (r *run) answered(at time.Time, b *journal.ConfirmationResolved) {
	for i := range r.asked.Calls {
		item := &r.asked.Calls[i]
		decided := b.Of(item.ID).Decision
		if decided == "" {
			continue // still open
		}
		s := r.decision(item.Name, item.ID, r.askedAt)
		s.SetAttributes(keyDecision.String(decided), keyBy.String(b.By), keyApproval.String(b.ApprovalID),
			keyKind.String(string(r.asked.Kind)))
		if len(item.Questions) > 0 {
			why := item.Questions[0].Reason
			s.SetAttributes(keyReason.String(string(why)), keyLayer.String(layerOf(why)))
		}
		r.end(s, at)
	}
}

func (r *run) over(at time.Time, status toolcrib.Status, stop toolcrib.StopReason, rounds int, u toolcrib.Usage) {
	r.traced.SetAttributes(keyStatus.String(string(status)), keyStop.String(string(stop)), keyRounds.Int(rounds))
	r.traced.SetAttributes(spent(u.InputTokens, u.CachedInputTokens, u.OutputTokens, u.CostUSD, u.Estimated)...)
	r.end(r.traced, at)
}

// messages encodes messages as the conventions require.
func messages(list []toolcrib.Message) string {
	type message struct {
		Role  string          `json:"role"`
		Parts json.RawMessage `json:"parts"`
	}
	out := make([]message, len(list))
	for i, m := range list {
		out[i] = message{string(m.Role), json.RawMessage(parts(m.Parts))}
	}
	return encoded(out)
}

func parts(list []toolcrib.Part) string {
	out := make([]map[string]any, len(list))
	for i, p := range list {
		switch {
		case p.Thinking != nil:
			out[i] = map[string]any{"type": "reasoning", "content": p.Thinking.Text}
		case p.ToolCall != nil:
			out[i] = map[string]any{
				"type": "tool_call", "id": p.ToolCall.ID, "name": p.ToolCall.Name,
				"arguments": p.ToolCall.Arguments,
			}
		case p.ToolResult != nil:
			out[i] = map[string]any{
				"type": "tool_call_response", "id": p.ToolResult.CallID, "response": p.ToolResult.Content,
			}
		case p.File != nil:
			out[i] = map[string]any{"type": "file", "file_id": p.File.Ref, "mime_type": p.File.MediaType}
		default:
			out[i] = map[string]any{"type": "text", "content": p.Text}
		}
	}
	return encoded(out)
}

func encoded(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "" // not a value of the journal
	}
	return string(text)
}
