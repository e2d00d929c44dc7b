package server

import (
	"cmp"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
	"github.com/toolcrib/toolcrib/server/openai"
	"github.com/toolcrib/toolcrib/service"
)

// waitingText matches the approval in the text of v1Waits.
var waitingText = lazyregexp.New(`\n\nApproval (apr_[0-9A-Z]{26}): \S+ \(or: toolcrib approvals show apr_`)

// maxOutcome bounds the answer of a waiting run that the model reads, in bytes.
const maxOutcome = 8 << 10

// v1Decided adds the outcome of the approval that the previous answer waited for to the user's message. That answer
// is unchanged, so that it is recognized. It returns the run that waited, or "".
func (c *call) v1Decided(a *openai.Ask) (toolcrib.RunID, error) {
	last := len(a.Messages) - 1
	for last >= 0 && a.Messages[last].Role == toolcrib.RoleUser {
		last--
	}
	if last < 0 || a.Messages[last].Role != toolcrib.RoleAssistant {
		return "", nil
	}
	found := waitingText.FindStringSubmatch(a.Messages[last].Text())
	if found == nil {
		return "", nil
	}
	v, err := c.Service.Approval(c, c.who, found[1])
	if err == nil && v.User != c.who.User {
		return "", nil // of another user, whose approver this is
	}
	var asked, run service.Run // the run of the calls, and the run above it that waited
	if err == nil {
		asked, err = c.Service.Run(c, c.who, string(v.Run))
	}
	for run = asked; err == nil && run.ParentID != ""; {
		run, err = c.Service.Run(c, c.who, string(run.ParentID))
	}
	if toolcrib.CodeOf(err) == toolcrib.CodeNotFound {
		return "", nil
	} else if err != nil {
		return "", err
	}
	text := "\n\n(Since then: approval " + v.ID + " is " + v.Status
	for _, d := range v.Decisions {
		text += ", " + strings.TrimSuffix(d.Decision+": "+d.Reason, ": ")
	}
	for _, call := range v.Calls {
		for _, made := range asked.Trace {
			if made.ID == call.ID {
				text += "; " + made.Name + ": " + cmp.Or(string(made.Status), "no result yet")
			}
		}
	}
	text += ". The run is " + string(run.Status) + "."
	if run.Error != nil {
		text += " " + run.Error.Message
	}
	if run.Content != "" {
		text += " Its answer: " + guard.Clip(run.Content, maxOutcome)
	}
	said := &a.Messages[len(a.Messages)-1]
	said.Parts = append(said.Parts, toolcrib.Part{Text: text + ")"})
	return run.ID, nil
}
