package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"

	"github.com/toolcrib/toolcrib"
)

// Digest binds a decision to what was shown: run, turn, principal, and for each call its
// canonical arguments, the workspace, and the state of the files that it writes. Each field
// is preceded by its length, so that different lists of fields never give the same bytes.
func Digest(run toolcrib.RunID, iteration int, who toolcrib.Principal, calls []ApprovalItem) string {
	h := sha256.New()
	field(h, string(run))
	field(h, strconv.Itoa(iteration))
	field(h, who.User)
	for _, c := range calls {
		field(h, c.ID)
		field(h, c.Name)
		field(h, string(c.Arguments))
		c.Binding.digest(h)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// digest writes the fields of a binding, after the number of its files; a nil binding is
// one empty field.
func (b *Binding) digest(h io.Writer) {
	if b == nil {
		field(h, "")
		return
	}
	field(h, strconv.Itoa(len(b.Files)))
	field(h, strconv.FormatBool(b.CommandLine))
	field(h, b.Workspace)
	field(h, b.LeadsTo)
	field(h, b.FolderID)
	for _, f := range b.Files {
		field(h, f.Path)
		field(h, f.State)
	}
}

// field writes s, preceded by its length. Writing to a hash never fails.
func field(h io.Writer, s string) {
	_, _ = io.WriteString(h, strconv.Itoa(len(s))+":"+s)
}
