package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"

	"github.com/toolcrib/toolcrib"
)

// Digest binds a decision to exactly what was shown: run, turn, principal, and of each
// call its canonical arguments, the workspace, and the state of the files that it
// writes (contract §6). Each field is preceded by its length, so that no two lists of
// fields give the same bytes.
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

// digest writes the fields of a binding; nil has none, and a number in front tells
// how many there are.
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

// field writes s with its length before it. A hash never fails to write.
func field(h io.Writer, s string) {
	_, _ = io.WriteString(h, strconv.Itoa(len(s))+":"+s)
}
