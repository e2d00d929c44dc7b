package main

import (
	"context"
	"iter"
	"sync"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/journal/inmemory"
)

// perRun is the journal in memory, one for each run, dropped when the run has
// ended: a benchmark of thousands of runs must not measure a growing heap.
type perRun struct {
	mu   sync.Mutex
	runs map[toolcrib.RunID]*inmemory.Journal
}

func (p *perRun) of(run toolcrib.RunID) *inmemory.Journal {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, ok := p.runs[run]
	if !ok {
		if p.runs == nil {
			p.runs = make(map[toolcrib.RunID]*inmemory.Journal)
		}
		m = &inmemory.Journal{}
		p.runs[run] = m
	}
	return m
}

// Append implements toolcrib.Journal.
func (p *perRun) Append(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq, events ...toolcrib.Event) error {
	err := p.of(run).Append(ctx, run, after, events...)
	if _, ended := events[len(events)-1].Body.(*journal.Done); ended {
		p.mu.Lock()
		delete(p.runs, run)
		p.mu.Unlock()
	}
	return err
}

// Read implements toolcrib.Journal.
func (p *perRun) Read(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq) iter.Seq2[toolcrib.Event, error] {
	return p.of(run).Read(ctx, run, after)
}

// Put implements toolcrib.Contents.
func (p *perRun) Put(ctx context.Context, run toolcrib.RunID, ref string, data []byte) error {
	return p.of(run).Put(ctx, run, ref, data)
}

// Range implements toolcrib.Contents.
func (p *perRun) Range(ctx context.Context, run toolcrib.RunID, ref string, offset, limit int64) ([]byte, int64,
	error,
) {
	return p.of(run).Range(ctx, run, ref, offset, limit)
}
