package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"

	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/journal"
)

// byConfirm is the reason of a call about which nothing but tools.confirm asks.
var byConfirm = regexp.MustCompile(`^[A-Za-z0-9_-]+ (only reads|writes \([a-z_]+\)); tools\.(settings\.[A-Za-z0-9_-]+\.)?confirm is (writes|always)$`)

// proposed is a rule that would let calls like this one pass; nil = none is narrow
// enough, or none would lift the question: a rule of the configuration asks, taint does,
// or tools.settings.X.confirm: always. A rule that would not hold for this very call,
// because a link in its path leads elsewhere, is none either.
func proposed(workspace string, c *journal.ApprovalItem) *propose.Rule {
	if linked(workspace, c.Arguments) || !byConfirm.MatchString(c.Reason) || !render.Rememberable([]journal.ApprovalItem{*c}) {
		return nil
	}
	return propose.For(c.Name, c.Arguments)
}

// linked tells whether the path of a call leads elsewhere than it reads.
func linked(workspace string, arguments json.RawMessage) bool {
	var args struct {
		Path *string `json:"path"`
	}
	if json.Unmarshal(arguments, &args) != nil || args.Path == nil {
		return false
	}
	if !filepath.IsLocal(*args.Path) {
		return true
	}
	for at := filepath.Clean(*args.Path); at != "."; at = filepath.Dir(at) {
		// One that leads nowhere yet is a link, too.
		if info, err := os.Lstat(filepath.Join(workspace, at)); err == nil && info.Mode()&os.ModeSymlink != 0 {
			return true
		}
	}
	return false
}

// hint is the text of [proposedText] for a call that is asked about on the terminal.
func (d *drive) hint(c *journal.ApprovalItem) string {
	return proposedText(proposed(d.workspace, c))
}

// proposedText is that rule for people; "" = there is none.
func proposedText(r *propose.Rule) string {
	if r == nil {
		return ""
	}
	return "to be asked no more about calls like this, add to rules of the configuration:\n" + r.Line()
}
