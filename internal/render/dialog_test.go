package render

import (
	"testing"

	"github.com/toolcrib/toolcrib/journal"
)

// Choices are named or numbered, also several of them.
func TestDialog_Choices(t *testing.T) {
	for _, c := range []struct {
		many        bool
		typed, want string
	}{
		{false, "2", "blue"},
		{false, "1,2", "1,2"},
		{true, "2", "blue"},
		{true, "1, blue", "red, blue"},
		{true, "3,9", "7, 9"},
		{true, `["red"]`, `["red"]`},
	} {
		d := &Dialog{Question: Question{
			Ask: journal.ConfirmationRequired{Kind: journal.ApprovalInput, Calls: []journal.ApprovalItem{{}}}, Many: c.many,
			Options: []string{"red", "blue", "7"},
		}}
		d.Open()
		if _, a, _ := d.Enter(c.typed); a == nil || a.Text != c.want {
			t.Errorf("%q: %+v, want %q", c.typed, a, c.want)
		}
	}
}
