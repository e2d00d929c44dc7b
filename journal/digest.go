package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strconv"

	"github.com/toolcrib/toolcrib"
)

// Digest binds a decision to exactly what was shown: run, turn, calls, canonical
// arguments and principal (contract §5.5). Each field is preceded by its length,
// so that no two lists of fields give the same bytes.
func Digest(run toolcrib.RunID, iteration int, who toolcrib.Principal, calls []ApprovalItem) string {
	h := sha256.New()
	field(h, string(run))
	field(h, strconv.Itoa(iteration))
	field(h, who.User)
	for _, c := range calls {
		field(h, c.ID)
		field(h, c.Name)
		field(h, string(c.Arguments))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// field writes s with its length before it. A hash never fails to write.
func field(h io.Writer, s string) {
	_, _ = io.WriteString(h, strconv.Itoa(len(s))+":"+s)
}
