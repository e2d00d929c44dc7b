package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
)

// condense makes the transcript shorter, as the step says.
func (d *driver) condense(ctx context.Context, step Step) error {
	if !step.Condense.Ask {
		return d.append(ctx, d.replaced(step, 0, "")...)
	}
	if stop, err := d.waitBefore(ctx, &step); stop || err != nil {
		return err
	}
	ctx = d.bounded(ctx)
	if stop, err := d.denied(ctx); stop || err != nil {
		return err
	}
	// The request is none of the conversation, so it does not go through the
	// conversation's encoder.
	model, err := d.r.Models(ctx, d.modelInfo(step.Model))
	if err != nil {
		model = unopened{err}
	}
	left, stop, err := d.reserve(ctx, &step)
	if stop || err != nil {
		return err
	}
	req := summaryRequest(d.s, step)
	sent := &journal.ModelRequest{
		Request: d.s.Requests + 1, Iteration: Rounds(d.s, step), Attempt: step.Attempt, Model: step.Model,
		DelayMS: step.Delay.Milliseconds(), Purpose: purposeCondense, Hash: requestHash(nil, req),
		ReservedInput: step.Reserve.Input, ReservedOutput: step.Reserve.Output, ReservedUSD: step.Reserve.USD,
		MaxOutput: step.Reserve.MaxOutput, UserLeft: left,
	}
	if err := d.append(ctx, noted(step.Notices, sent)...); err != nil {
		return err
	}
	in := &reception{d: d, began: d.r.Clock.Now(), most: maxReplyBytes}
	err = in.stream(ctx, model, req)
	if err == nil && !in.reply.Finished() {
		err = &toolcrib.ModelError{Class: toolcrib.ErrNetwork, Message: "the summary broke off before its end"}
	}
	if err != nil {
		return d.failed(ctx, sent, err, &in.reply, d.r.Clock.Now().Sub(in.began))
	}
	reply := in.reply.Reply()
	tokens, estimated := d.count(sent, &reply)
	cost, sum := d.settle(sent, tokens, estimated)
	spent := &journal.Usage{Request: sent.Request, Tokens: tokens, CostUSD: cost, Estimated: estimated, Sum: sum}
	summary, _ := guard.RedactCanary(d.r.Mask.Clean(reply.Message.Text()), d.s.Start.Canary)
	summary = strings.TrimSpace(summary)
	return d.append(ctx, append([]toolcrib.Body{spent}, d.replaced(step, sent.Request, summary)...)...)
}

// replaced is what is written down about messages that are replaced; without a
// summary they are dropped.
func (d *driver) replaced(step Step, request int, summary string) []toolcrib.Body {
	c := step.Condense
	var gone int64
	for i := c.From; i < c.From+c.Messages; i++ {
		gone += messageBytes(&d.s.Messages[i])
	}
	if int64(len(summary)) >= gone {
		summary = "" // longer than what it sums up
	}
	b := &journal.Condensed{
		Request: request, Iteration: Rounds(d.s, step), Strategy: ContextCondense, From: c.From, Messages: c.Messages,
		Text:   condensedText(c.Messages, summary, d.s.holdsUntrusted(c.From, c.Messages)),
		Before: c.Before, Reason: c.Reason,
	}
	done := "condensed"
	if summary == "" {
		b.Strategy, done = ContextDrop, "left out"
	}
	b.After = max(c.Before-d.s.tokens(gone)+d.s.tokens(int64(len(b.Text))), 0)
	return []toolcrib.Body{b, &journal.Notice{Notice: toolcrib.Notice{
		Code:    NoticeCondensed,
		Message: fmt.Sprintf("the conversation would not fit into the model's context: %s (about %d tokens before, %d now)", oldestWere(c.Messages, done), b.Before, b.After),
	}}}
}

func oldestWere(n int, done string) string {
	if n == 1 {
		return "its oldest message was " + done
	}
	return fmt.Sprintf("its %d oldest messages were %s", n, done)
}
