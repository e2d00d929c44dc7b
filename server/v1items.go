package server

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/server/openai"
	"github.com/toolcrib/toolcrib/service"
)

// maxReferred bounds the answers to whose items a request may refer.
const maxReferred = 200

// v1Items returns a function that finds items of earlier answers.
func (c *call) v1Items() openai.Lookup {
	type answer struct {
		run    toolcrib.RunID
		after  toolcrib.Seq
		schema bool
	}
	known := map[answer][]openai.ResponseItem{}
	return func(id string) (*openai.ResponseItem, error) {
		run, after, schema, ok := openai.ReadItemID(id)
		if !ok {
			return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "not an ID of this server")
		}
		of := answer{run, after, schema}
		items, ok := known[of]
		if !ok {
			if len(known) == maxReferred {
				return nil, bad("input: refers to items of more than %d answers; send the items themselves", maxReferred)
			}
			var err error
			if items, err = c.v1Answered(run, after, schema); err != nil {
				return nil, err
			}
			known[of] = items
		}
		i := slices.IndexFunc(items, func(item openai.ResponseItem) bool { return item.ID == id })
		if i < 0 {
			return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "no such item")
		}
		return &items[i], nil
	}
}

// v1Answered returns the items of the answer that begins after an event of a run, for every end that it may have
// had: each pause, and the end of the run.
func (c *call) v1Answered(id toolcrib.RunID, after toolcrib.Seq, schema bool) (items []openai.ResponseItem, err error) {
	run, err := c.Service.Run(c, c.who, string(id))
	if err != nil {
		return nil, err
	}
	var frames []journal.Frame
	end := func() error {
		said, err := c.v1Again(&run, frames, after, schema)
		for _, item := range said {
			if !slices.ContainsFunc(items, func(known openai.ResponseItem) bool { return known.ID == item.ID }) {
				items = append(items, item)
			}
		}
		return err
	}
	err = c.Service.Events(c, c.who, string(id), after, false, func(f journal.Frame) error {
		frames = append(frames, f)
		switch v := f.Data.(type) {
		case *journal.Paused:
			if v.Pending.Kind == journal.PendingProvider {
				return nil // not an answer
			}
			if err := end(); err != nil || v.Pending.Kind != journal.PendingClientTool {
				return err
			}
			return openai.ErrOver
		case journal.DoneView, journal.ErrorView:
			return end()
		}
		return nil
	})
	if errors.Is(err, openai.ErrOver) {
		err = nil
	}
	return items, err
}

// v1Again rebuilds an answer from its frames.
func (c *call) v1Again(run *service.Run, frames []journal.Frame, after toolcrib.Seq, schema bool) (
	[]openai.ResponseItem, error,
) {
	a := &openai.Ask{}
	if schema {
		a.Schema = []byte("{}")
	}
	id := strings.TrimPrefix(string(run.ID), "run_") + "_" + strconv.FormatInt(int64(after), 10)
	t := openai.NewTeller(a, openai.NewRespond(a, id, 0, nil), toolcrib.Usage{})
	for _, f := range frames {
		if err := t.Frame(f); err != nil && !errors.Is(err, openai.ErrOver) {
			return nil, err
		}
	}
	err := t.Over(run.ID, place(run), c.v1Waits)
	return t.Whole().(openai.Response).Output, err
}
