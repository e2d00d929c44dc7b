package openai

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

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
	index     int // as sent; -1: none
	id        string
	name      string
	signature string
	nest      wire.Nesting // of the arguments
	arguments []byte
	shown     bool // its name was handed on
	repeated  bool // by the frame at hand
}

// addCalls takes the pieces of one frame.
func (d *decoder) addCalls(pieces []callPiece, emit wire.Emit) {
	before := len(d.calls)
	for i := range d.calls {
		d.calls[i].repeated = false
	}
	for i := range pieces {
		if p := &pieces[i]; !d.repeats(p, before) {
			d.addCall(p, emit)
		}
	}
	if d.reason != "" || d.whole {
		d.settle(emit)
	}
}

// settle hands on the calls of which nothing was: their names are whole.
func (d *decoder) settle(emit wire.Emit) {
	for i := range d.calls {
		if k := &d.calls[i]; !k.shown {
			k.shown = true
			emit(toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{Index: i, ID: k.id, Name: k.name, Signature: k.signature}})
		}
	}
}

// repeats reports whether a piece says a whole call again, as the last frame of some servers does,
// without its ID. Nothing else can follow arguments that are whole.
func (d *decoder) repeats(p *callPiece, before int) bool {
	last, index, f := d.reason != "", p.number(), &p.Function
	for i := range d.calls[:before] {
		k := &d.calls[i]
		switch {
		case d.whole, k.repeated, !k.nest.Whole(), !sameArguments(string(k.arguments), f.Arguments):
		case p.ID != "" && (p.ID != k.id || !last), f.Name != "" && f.Name != k.name:
		case !last && index >= 0 && index != k.index:
		case last, f.Name == "", k.id != "":
			k.repeated = true
			return true
		}
	}
	return false
}

// sameArguments reports whether two texts are the same JSON, or the second one is the first in a string.
func sameArguments(a, b string) bool {
	var inner string
	if json.Unmarshal([]byte(b), &inner) == nil {
		b = inner
	}
	var left, right bytes.Buffer
	return json.Compact(&left, []byte(a)) == nil && json.Compact(&right, []byte(b)) == nil &&
		bytes.Equal(left.Bytes(), right.Bytes())
}

// addCall finds the call that a piece belongs to. By the API's word that is its
// index; but there are servers that send none, or 0 for every call, or the name
// again with each piece, or the name in pieces.
func (d *decoder) addCall(p *callPiece, emit wire.Emit) {
	pos := d.find(p)
	if pos < 0 {
		d.settle(emit)
		pos = len(d.calls)
		d.calls = append(d.calls, callState{index: p.number()})
	}
	k, name := &d.calls[pos], p.Function.Name
	delta := &toolcrib.ToolCallDelta{Index: pos, Arguments: p.Function.Arguments}
	if len(p.Extra) > 0 && p.Extra[0] == '{' {
		k.signature = string(p.Extra)
		delta.Signature = k.signature
	}
	if k.id == "" && p.ID != "" {
		k.id, delta.ID = p.ID, p.ID
	}
	if name != "" && name != k.name {
		if !strings.HasPrefix(name, k.name) {
			name = k.name + name // else it comes again, longer
		}
		k.name, delta.Name = name, name
	}
	k.arguments = append(k.arguments, delta.Arguments...)
	for i := range len(delta.Arguments) {
		k.nest.Step(delta.Arguments[i])
	}
	switch {
	case !k.shown && len(k.arguments) == 0 && !d.unique(k.name):
		return // more of its name may come
	case !k.shown:
		k.shown = true
		delta.ID, delta.Name, delta.Signature = k.id, k.name, k.signature
	case delta.ID == "" && delta.Name == "" && delta.Arguments == "" && delta.Signature == "":
		return
	}
	emit(toolcrib.Delta{ToolCall: delta})
}

// unique reports whether a name is that of an offered tool, and of no other one the beginning.
func (d *decoder) unique(name string) bool {
	n := 0
	for _, tool := range d.tools {
		if strings.HasPrefix(tool, name) {
			n++
		}
	}
	return n == 1 && slices.Contains(d.tools, name)
}

// find returns the call that a piece continues, -1 if it begins one.
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
		case !sameID:
			return -1 // another call under the same index, or without one
		case k.name != "" && name != k.name && (index < 0 || len(k.arguments) > 0 || d.offered(k.name) && d.offered(name)):
			return -1 // and so it is, unless this is a piece of the name
		case k.name != "" && k.nest.Whole() && p.Function.Arguments != "":
			return -1 // the call was whole already: this is the next
		}
		return i
	}
	return -1
}

func (d *decoder) offered(name string) bool { return slices.Contains(d.tools, name) }
