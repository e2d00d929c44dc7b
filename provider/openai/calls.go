package openai

import (
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// maxCalls bounds the calls of one reply; a turn may have 64 by default.
const maxCalls = 4096

// callPiece is one element of tool_calls as it was sent.
type callPiece struct {
	index     int // -1: none was sent
	id        string
	name      string
	arguments string
	extra     string // extra_content, the JSON text of an object
}

// callState is what is known of one call of the reply.
type callState struct {
	index int // as sent; -1: none
	id    string
	name  string
	depth jsonDepth
}

func readCalls(c *wire.Cursor) []callPiece {
	if !c.Enter('[') {
		return nil
	}
	var pieces []callPiece
	for c.Next() {
		p := callPiece{index: -1}
		if !c.Enter('{') {
			continue
		}
		for {
			key, ok := c.Key()
			if !ok {
				break
			}
			switch string(key) {
			case "index":
				if c.Peek() == 'n' {
					c.Skip()
					continue
				}
				p.index = int(c.Int())
			case "id":
				p.id = c.Text()
			case "function":
				p, _ = readFunction(c, p)
			case "extra_content":
				if c.Peek() == '{' {
					p.extra = string(c.Raw())
				} else {
					c.Skip()
				}
			default:
				c.Skip()
			}
		}
		pieces = append(pieces, p)
	}
	return pieces
}

// readFunction reads name and arguments. Arguments sent as an object come as
// their JSON text.
func readFunction(c *wire.Cursor, p callPiece) (callPiece, bool) {
	if !c.Enter('{') {
		return p, false
	}
	for {
		key, ok := c.Key()
		if !ok {
			return p, true
		}
		switch string(key) {
		case "name":
			p.name = readText(c)
		case "arguments":
			p.arguments = c.Text()
		default:
			c.Skip()
		}
	}
}

// addCall finds the call that a piece belongs to. By the API's word that is its
// index; but there are servers that send none, or 0 for every call, or the name
// again with each piece.
func (d *decoder) addCall(p *callPiece) *toolcrib.ToolCallDelta {
	pos := d.find(p)
	fresh := pos < 0
	if fresh {
		pos = len(d.calls)
		d.calls = append(d.calls, callState{index: p.index})
	}
	k := &d.calls[pos]
	delta := &toolcrib.ToolCallDelta{Index: pos, Arguments: p.arguments, Signature: p.extra}
	if k.id == "" && p.id != "" {
		k.id, delta.ID = p.id, p.id
	}
	if k.name == "" && p.name != "" {
		k.name, delta.Name = p.name, p.name
	}
	k.depth.add(p.arguments)
	if !fresh && delta.ID == "" && delta.Name == "" && delta.Arguments == "" && delta.Signature == "" {
		return nil
	}
	return delta
}

func (d *decoder) find(p *callPiece) int {
	if d.whole {
		return -1 // in a reply in one piece each element is a call
	}
	for i := len(d.calls) - 1; i >= 0; i-- {
		k := &d.calls[i]
		sameID := p.id == "" || k.id == "" || p.id == k.id
		switch {
		case p.index >= 0 && k.index != p.index:
			continue
		case p.index < 0 && p.name == "" && !sameID:
			continue
		case p.name == "":
			return i // no name: the piece continues a call, whatever its ID
		case !sameID, k.name != "" && p.name != k.name:
			return -1 // another call under the same index, or without one
		case k.name != "" && k.depth.whole() && p.arguments != "":
			return -1 // the call was whole already: this is the next
		}
		return i
	}
	return -1
}

// jsonDepth follows the nesting of a JSON text that comes in pieces.
type jsonDepth struct {
	depth   int
	started bool
	inText  bool
	escaped bool
}

func (j *jsonDepth) add(s string) {
	for i := 0; i < len(s); i++ {
		b := s[i]
		switch {
		case j.escaped:
			j.escaped = false
		case j.inText:
			j.inText = b != '"'
			j.escaped = b == '\\'
		case b == '"':
			j.inText = true
		case b == '{' || b == '[':
			j.depth++
			j.started = true
		case b == '}' || b == ']':
			j.depth--
		}
	}
}

func (j *jsonDepth) whole() bool { return j.started && j.depth <= 0 && !j.inText }
