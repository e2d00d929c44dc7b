package bus

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/guard"
)

// Name is the name of a capability with its version, such as rag.query@1.0.
type Name struct {
	Name         string // at least two words of a-z, 0-9, _ and -, with dots between them; each begins with a letter
	Major, Minor int    // 0 to 9999
}

// ParseName reads NAME@MAJOR.MINOR. The error has the code bad_request.
func ParseName(text string) (Name, error) {
	name, major, minor, ok := access.ReadCapability(text)
	switch {
	case ok && !strings.Contains(name, "."):
		return Name{}, toolcrib.Errorf(toolcrib.CodeBadRequest,
			"the capability %+q: its name needs a dot, as in rag.query@1.0", guard.Clip(text, 128))
	case !ok:
		return Name{}, toolcrib.Errorf(toolcrib.CodeBadRequest,
			"the capability %+q: write NAME@MAJOR.MINOR, such as rag.query@1.0", guard.Clip(text, 128))
	}
	return Name{name, major, minor}, nil
}

// String returns NAME@MAJOR.MINOR.
func (n Name) String() string {
	return n.Name + "@" + strconv.Itoa(n.Major) + "." + strconv.Itoa(n.Minor)
}

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
	return cmp.Or(strings.Compare(n.Name, m.Name), cmp.Compare(n.Major, m.Major), cmp.Compare(n.Minor, m.Minor))
}
