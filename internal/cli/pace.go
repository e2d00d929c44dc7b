package cli

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
)

// pace bounds the requests of a minute (providers.X.requests_per_minute).
type pace struct {
	most int

	mu   sync.Mutex
	sent []time.Time // within the last minute
}

// wait waits until another request may be sent.
func (p *pace) wait(ctx context.Context) error {
	for {
		delay := p.take(time.Now())
		if delay <= 0 {
			return nil
		}
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

func (p *pace) take(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.sent) > 0 && now.Sub(p.sent[0]) >= time.Minute {
		p.sent = p.sent[1:]
	}
	if len(p.sent) >= p.most {
		return time.Minute - now.Sub(p.sent[0])
	}
	p.sent = append(p.sent, now)
	return 0
}

// paced holds requests back as its pace says.
type paced struct {
	model toolcrib.Model
	pace  *pace
}

// Conversation keeps the model's own conversations under the same pace.
func (p *paced) Conversation() toolcrib.Model {
	if c, ok := p.model.(toolcrib.Conversational); ok {
		return &paced{model: c.Conversation(), pace: p.pace}
	}
	return p
}

// Stream waits for its turn, then sends the request.
func (p *paced) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	return func(yield func(toolcrib.Delta, error) bool) {
		if err := p.pace.wait(ctx); err != nil {
			yield(toolcrib.Delta{}, err)
			return
		}
		for d, err := range p.model.Stream(ctx, req) {
			if !yield(d, err) {
				return
			}
		}
	}
}
