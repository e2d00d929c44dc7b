package cli

import (
	"regexp"

	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
)

// byConfirm is the reason of a call about which nothing but tools.confirm asks.
var byConfirm = regexp.MustCompile(`^[A-Za-z0-9_-]+ (only reads|writes \([a-z_]+\)); tools\.(settings\.[A-Za-z0-9_-]+\.)?confirm is (writes|always)$`)

// proposed is a rule that would let calls like this one pass; nil = none is narrow
// enough, or none would lift the question: a rule of the configuration asks, taint does,
// or tools.settings.X.confirm: always.
func proposed(c *journal.ApprovalItem) *propose.Rule {
	if !byConfirm.MatchString(c.Reason) || !render.Rememberable([]journal.ApprovalItem{*c}) {
		return nil
	}
	return propose.For(c.Name, c.Arguments)
}

// proposedText is that rule for people; "" = there is none.
func proposedText(r *propose.Rule) string {
	if r == nil {
		return ""
	}
	return "to be asked no more about calls like this, add to rules of the configuration:\n" + r.Line()
}
