package agent

import (
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
)

// A run and all runs below it are a tree, which has caps of its own (limits.max_tree_…):
// how many runs, requests and bytes of journals there may be. They are shared out like a
// budget, so that no run has to look at another's journal, and they hold whatever the
// mode of the budget is.

// minChildBytes is the least that is left for the journal of a child run.
const minChildBytes = 64 << 10

// Used is what a run has used, together with the runs below it that have ended.
type Used struct {
	toolcrib.Usage
	Runs  int   // itself among them
	Bytes int64 // of what the journals keep, see sizeOf
}

// Used returns what the run has used.
func (s *State) Used() Used {
	return Used{Usage: s.Spent(), Runs: 1 + s.childRuns, Bytes: s.bytes + s.childBytes}
}

// treeBound are the caps of the run's own tree.
func (s *State) treeBound() bound {
	l := &s.Start.Agent.Limits
	return bound{
		Share: journal.Share{Requests: l.MaxTreeRequests, Runs: l.MaxTreeRuns, Bytes: l.MaxTreeBytes}, whose: "limits.", tree: true,
	}
}

// sizeOf is about how many bytes an event takes in the journal, kept results and files
// included. It depends on nothing but the event, so that every reader of a journal
// comes to the same sum.
func sizeOf(body toolcrib.Body) int64 {
	const event = 256 // what each has
	n := event
	switch b := body.(type) {
	case *journal.RunStarted:
		n += len(b.System)
		for i := range b.Input {
			n += sizeOfParts(b.Input[i].Parts)
		}
		for _, t := range b.Offer.Tools {
			n += len(t.Name) + len(t.Hash)
		}
	case *journal.Offered:
		for _, t := range b.Offer.Tools {
			n += len(t.Name) + len(t.Hash)
		}
	case *journal.Message:
		n += sizeOfParts(b.Parts)
	case *journal.ToolCall:
		n += len(b.Arguments) + len(b.Broken)
	case *journal.Verdicts:
		for i := range b.Verdicts {
			v := &b.Verdicts[i]
			n += event + len(v.Message) + len(v.Detail)
			for _, t := range v.Targets {
				n += len(t.Name)
			}
			if v.Preview != nil {
				n += len(v.Preview.Text)
			}
		}
	case *journal.ConfirmationRequired:
		for i := range b.Calls {
			n += len(b.Calls[i].Arguments)
		}
	case *journal.ToolStarted:
		n += len(b.Prepared)
	case *journal.ToolResult:
		n += len(b.Content) + len(b.Fault)
		for _, f := range b.Files {
			n += int(f.Bytes)
		}
		n += int(b.Bytes)
	case *journal.Condensed:
		n += len(b.Text)
	case *journal.Said:
		n += len(b.Text)
	case *journal.Done:
		n += len(b.Content)
	case *journal.Error:
		n += len(b.Content)
	}
	return int64(n)
}

// sizeOfParts leaves out the calls of a reply: they are events of their own.
func sizeOfParts(parts []toolcrib.Part) int {
	n := 0
	for i := range parts {
		p := &parts[i]
		n += len(p.Text)
		switch {
		case p.Thinking != nil:
			n += len(p.Thinking.Text)
		case p.ToolResult != nil:
			n += len(p.ToolResult.Content)
		case p.File != nil:
			n += int(p.File.Bytes)
		}
	}
	return n
}
