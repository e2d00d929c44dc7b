package agent

import (
	"context"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/guard"
)

// purposeCondense is the [journal.ModelRequest.Purpose] of a request for a summary.
const purposeCondense = "condense"

// condense shortens the transcript as the step describes.
func (d *driver) condense(ctx context.Context, step core.Step) error {
	if !step.Condense.Ask {
		b, n := d.s.Replace(step, 0, "")
		return d.append(ctx, b, n)
	}
	if stop, err := d.waitBefore(ctx, &step); stop || err != nil {
		return err
	}
	ctx = d.bounded(ctx)
	if stop, err := d.denied(ctx); stop || err != nil {
		return err
	}
	// The request is not part of the conversation, so it does not go through the
	// conversation's encoder.
	model, err := d.r.Models(ctx, d.modelInfo(step.Model))
	if err != nil {
		model = unopened{err}
	}
	left, stop, err := d.reserve(ctx, &step)
	if stop || err != nil {
		return err
	}
	req := core.SummaryRequest(d.s, step)
	sent := d.request(step, left)
	sent.Purpose, sent.Hash = purposeCondense, core.HashRequest(nil, req)
	if err := d.append(ctx, append(step.Notices, sent)...); err != nil {
		return err
	}
	in := &reception{d: d, began: d.r.Clock.Awake(), what: "summary"}
	if err := in.stream(ctx, model, req); err != nil {
		return d.failed(ctx, sent, err, &in.reply, d.r.Clock.Awake()-in.began)
	}
	reply := in.reply.Reply()
	summary, _ := guard.RedactCanary(d.r.Mask.Clean(reply.Message.Text()), d.s.Start.Canary)
	b, n := d.s.Replace(step, sent.Request, strings.TrimSpace(summary))
	if d.s.Start.Compact && b.Strategy == core.ContextDrop {
		err = &toolcrib.ModelError{
			Class:   toolcrib.ErrRefused,
			Message: "there is no summary, or it is longer than what was said",
		}
		return d.failed(ctx, sent, err, &in.reply, d.r.Clock.Awake()-in.began)
	}
	return d.append(ctx, d.settle(sent, &reply), b, n)
}
