package openai

import (
	"encoding/json"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// callPiece is one element of tool_calls as it was sent.
type callPiece struct {
	Index    wire.Number
	ID       string
	Function function
	Extra    json.RawMessage
}

// function is what a call names. Arguments sent as an object come as their JSON text.
type function struct {
	Present         bool
	Name, Arguments string
}

func (p *callPiece) read(c *wire.Cursor) {
	for key, ok := c.EnterObject(); ok; key, ok = c.Key() {
		switch string(key) {
		case "index":
			p.Index = c.Number()
		case "id":
			p.ID = c.Text()
		case "function":
			p.Function.read(c)
		case "extra_content":
			p.Extra = c.Raw()
		default:
			c.Skip()
		}
	}
}

func (f *function) read(c *wire.Cursor) {
	f.Present = c.Peek() == '{'
	for key, ok := c.EnterObject(); ok; key, ok = c.Key() {
		switch string(key) {
		case "name":
			f.Name = c.Plain()
		case "arguments":
			f.Arguments = c.Text()
		default:
			c.Skip()
		}
	}
}

// number is the index as sent; -1 if none was.
func (p *callPiece) number() int {
	if !p.Index.Given {
		return -1
	}
	return int(p.Index.Value)
}

// callState is what is known of one call of the reply.
type callState struct {
	index int // as sent; -1: none
	id    string
	name  string
	depth jsonDepth
}

// addCall finds the call that a piece belongs to. By the API's word that is its
// index; but there are servers that send none, or 0 for every call, or the name
// again with each piece.
func (d *decoder) addCall(p *callPiece) *toolcrib.ToolCallDelta {
	pos := d.find(p)
	fresh := pos < 0
	if fresh {
		pos = len(d.calls)
		d.calls = append(d.calls, callState{index: p.number()})
	}
	k := &d.calls[pos]
	delta := &toolcrib.ToolCallDelta{Index: pos, Arguments: p.Function.Arguments}
	if len(p.Extra) > 0 && p.Extra[0] == '{' {
		delta.Signature = string(p.Extra)
	}
	if k.id == "" && p.ID != "" {
		k.id, delta.ID = p.ID, p.ID
	}
	if k.name == "" && p.Function.Name != "" {
		k.name, delta.Name = p.Function.Name, p.Function.Name
	}
	k.depth.add(delta.Arguments)
	if !fresh && delta.ID == "" && delta.Name == "" && delta.Arguments == "" && delta.Signature == "" {
		return nil
	}
	return delta
}

func (d *decoder) find(p *callPiece) int {
	if d.whole {
		return -1 // in a reply in one piece each element is a call
	}
	index, id, name := p.number(), string(p.ID), p.Function.Name
	for i := len(d.calls) - 1; i >= 0; i-- {
		k := &d.calls[i]
		sameID := id == "" || k.id == "" || id == k.id
		switch {
		case index >= 0 && k.index != index:
			continue
		case index < 0 && name == "" && !sameID:
			continue
		case name == "":
			return i // no name: the piece continues a call, whatever its ID
		case !sameID, k.name != "" && name != k.name:
			return -1 // another call under the same index, or without one
		case k.name != "" && k.depth.whole() && p.Function.Arguments != "":
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
