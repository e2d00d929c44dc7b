package bus

import (
	"fmt"
	"strconv"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/lazyregexp"
)

// Name is the name of a capability with its version, such as rag.query@1.0.
type Name struct {
	Name         string // words of a-z, 0-9, _ and -, with dots between them; each begins with a letter
	Major, Minor int    // 0 to 9999
}

// maxNameBytes is the most bytes of a name with its version, as in the scope of a token.
const maxNameBytes = 128

var namePattern = lazyregexp.New(
	`^([a-z][a-z0-9_-]*(?:\.[a-z][a-z0-9_-]*)+)@(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})$`)

// ParseName reads NAME@MAJOR.MINOR. The error has the code bad_request.
func ParseName(text string) (Name, error) {
	if found := namePattern.FindStringSubmatch(text); found != nil && len(text) <= maxNameBytes {
		major, err1 := strconv.Atoi(found[2])
		minor, err2 := strconv.Atoi(found[3])
		if err1 == nil && err2 == nil {
			return Name{found[1], major, minor}, nil
		}
	}
	return Name{}, toolcrib.Errorf(toolcrib.CodeBadRequest,
		"the capability %+q: write NAME@MAJOR.MINOR, such as rag.query@1.0", guard.Clip(text, maxNameBytes))
}

// String returns NAME@MAJOR.MINOR.
func (n Name) String() string { return fmt.Sprintf("%s@%d.%d", n.Name, n.Major, n.Minor) }

// Serves reports whether a capability with this name answers calls to the asked one: the same name and major
// version, and a minor version at least as high.
func (n Name) Serves(asked Name) bool {
	return n.Name == asked.Name && n.Major == asked.Major && n.Minor >= asked.Minor
}

// MarshalText implements [encoding.TextMarshaler].
func (n Name) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (n *Name) UnmarshalText(text []byte) (err error) {
	*n, err = ParseName(string(text))
	return err
}

func (n Name) compare(m Name) int {
	switch {
	case n.Name != m.Name && n.Name < m.Name, n.Name == m.Name && n.Major < m.Major,
		n.Name == m.Name && n.Major == m.Major && n.Minor < m.Minor:
		return -1
	case n == m:
		return 0
	}
	return 1
}
