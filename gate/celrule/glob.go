package celrule

import "github.com/toolcrib/toolcrib/gate"

// pattern is a name of a tool, or a glob over names, as in the gate's lists.
type pattern struct {
	text string
	wild bool
}

// readPattern reports false for what could be no tool's name.
func readPattern(text string) (pattern, bool) {
	ok, wild := gate.ReadPattern(text)
	return pattern{text, wild}, ok
}

func (p pattern) match(name string) bool { return gate.Match(p.text, name) }
