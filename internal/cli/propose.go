package cli

import (
	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/journal"
)

// hint is the text of [proposedText] for a call that is asked about on the terminal.
func (*drive) hint(c *journal.ApprovalItem) string { return proposedText(propose.Asked(c)) }

// proposedText is that rule for people; "" = there is none.
func proposedText(r *propose.Rule) string {
	if r == nil {
		return ""
	}
	return "to allow calls like this without a question, add to the rules of the configuration:\n" + r.Line()
}
