package cli

import (
	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
)

// proposed is a rule that would let calls like this one pass; nil = none is narrow
// enough, or none would lift the question: a rule of the configuration asks, taint does,
// or tools.settings.X.confirm: always.
func proposed(c *journal.ApprovalItem) *propose.Rule {
	if len(c.Questions) != 1 || c.Questions[0].Setting == "" || !render.Rememberable([]journal.ApprovalItem{*c}) {
		return nil
	}
	return propose.For(c)
}

// hint is the text of [proposedText] for a call that is asked about on the terminal.
func (*drive) hint(c *journal.ApprovalItem) string { return proposedText(proposed(c)) }

// proposedText is that rule for people; "" = there is none.
func proposedText(r *propose.Rule) string {
	if r == nil {
		return ""
	}
	return "to be asked no more about calls like this, add to rules of the configuration:\n" + r.Line()
}
