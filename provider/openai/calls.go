package openai

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/provider/wire"
)

// callPiece is one element of tool_calls.
type callPiece struct {
	Index    wire.Optional[float64]  `json:"index"`
	ID       wire.Loose              `json:"id"`
	Function wire.Optional[function] `json:"function"`
	Extra    json.RawMessage         `json:"extra_content"`
}

// function is the name and the arguments of a call. Arguments sent as an object are their JSON text.
type function struct {
	Name      string     `json:"name"`
	Arguments wire.Loose `json:"arguments"`
}

// number returns the index that was sent, or -1.
func (p *callPiece) number() int {
	if !p.Index.Present {
		return -1
	}
	return int(wire.Int(p.Index.Value))
}

// callState is the state of one call of the reply.
type callState struct {
	index     int // index that was sent, or -1
	id        string
	name      string
	signature string
	nest      wire.Nesting // of the arguments
	arguments []byte
	shown     bool // its name was passed on
	repeated  bool // in the current frame
}

// addCalls adds the pieces of one frame.
func (d *decoder) addCalls(pieces []wire.Optional[callPiece], emit wire.Emit) {
	before := len(d.calls)
	for i := range d.calls {
		d.calls[i].repeated = false
	}
	for i := range pieces {
		if p := &pieces[i].Value; pieces[i].Present && !d.repeats(p, before) {
			d.addCall(p, emit)
		}
	}
	if d.reason != "" || d.whole {
		d.settle(emit)
	}
}

// settle passes on the calls that were held back, because their names are complete.
func (d *decoder) settle(emit wire.Emit) {
	for i := range d.calls {
		if k := &d.calls[i]; !k.shown {
			k.shown = true
			emit(toolcrib.Delta{ToolCall: &toolcrib.ToolCallDelta{Index: i, ID: k.id, Name: k.name, Signature: k.signature}})
		}
	}
}

// repeats reports whether a piece repeats a complete call without its ID, as the last frame of some
// servers does. Nothing else can follow complete arguments.
func (d *decoder) repeats(p *callPiece, before int) bool {
	last, index, f := d.reason != "", p.number(), &p.Function.Value
	for i := range d.calls[:before] {
		k := &d.calls[i]
		switch {
		case d.whole, k.repeated, !k.nest.Whole():
		case p.ID != "" && (string(p.ID) != k.id || !last), f.Name != "" && f.Name != k.name:
		case !last && index >= 0 && index != k.index:
		case !sameArguments(string(k.arguments), string(f.Arguments)):
		case last, f.Name == "", k.id != "":
			k.repeated = true
			return true
		}
	}
	return false
}

// sameArguments reports whether two texts are the same JSON, or b is a string that contains a.
func sameArguments(a, b string) bool {
	var inner string
	if json.Unmarshal([]byte(b), &inner) == nil {
		b = inner
	}
	var left, right bytes.Buffer
	return json.Compact(&left, []byte(a)) == nil && json.Compact(&right, []byte(b)) == nil &&
		bytes.Equal(left.Bytes(), right.Bytes())
}

// addCall adds a piece to its call. By the API's definition that is the one with its
// index; but some servers send no index, or 0 for every call, or repeat the name
// with each piece, or split the name.
func (d *decoder) addCall(p *callPiece, emit wire.Emit) {
	pos := d.find(p)
	if pos < 0 {
		d.settle(emit)
		pos = len(d.calls)
		d.calls = append(d.calls, callState{index: p.number()})
	}
	k, name := &d.calls[pos], p.Function.Value.Name
	delta := &toolcrib.ToolCallDelta{Index: pos, Arguments: string(p.Function.Value.Arguments)}
	if len(p.Extra) > 0 && p.Extra[0] == '{' {
		k.signature = string(p.Extra)
		delta.Signature = k.signature
	}
	if k.id == "" && p.ID != "" {
		k.id = string(p.ID)
		delta.ID = k.id
	}
	if name != "" && name != k.name {
		if !strings.HasPrefix(name, k.name) {
			name = k.name + name // otherwise it is repeated, longer
		}
		k.name, delta.Name = name, name
	}
	k.arguments = append(k.arguments, delta.Arguments...)
	for i := range len(delta.Arguments) {
		k.nest.Step(delta.Arguments[i])
	}
	switch {
	case !k.shown && len(k.arguments) == 0 && !d.unique(k.name):
		return // more of its name may follow
	case !k.shown:
		k.shown = true
		delta.ID, delta.Name, delta.Signature = k.id, k.name, k.signature
	case delta.ID == "" && delta.Name == "" && delta.Arguments == "" && delta.Signature == "":
		return
	}
	emit(toolcrib.Delta{ToolCall: delta})
}

// unique reports whether a name is that of an offered tool, and not a prefix of another.
func (d *decoder) unique(name string) bool {
	n := 0
	for _, tool := range d.tools {
		if strings.HasPrefix(tool, name) {
			n++
		}
	}
	return n == 1 && slices.Contains(d.tools, name)
}

// find returns the index of the call that a piece continues, or -1 if it begins one.
func (d *decoder) find(p *callPiece) int {
	if d.whole {
		return -1 // in a reply that is not a stream each element is a call
	}
	index, id, name := p.number(), string(p.ID), p.Function.Value.Name
	for i := len(d.calls) - 1; i >= 0; i-- {
		k := &d.calls[i]
		sameID := id == "" || k.id == "" || id == k.id
		switch {
		case index >= 0 && k.index != index:
			continue
		case index < 0 && name == "" && !sameID:
			continue
		case name == "":
			return i // without a name the piece continues a call, whatever its ID
		case !sameID:
			return -1 // another call with the same index, or without one
		case k.name != "" && name != k.name && (index < 0 || len(k.arguments) > 0 || d.offered(k.name) && d.offered(name)):
			return -1 // another call, because this is not a piece of the name
		case k.name != "" && k.nest.Whole() && p.Function.Value.Arguments != "":
			return -1 // the call was complete; this is the next
		}
		return i
	}
	return -1
}

func (d *decoder) offered(name string) bool { return slices.Contains(d.tools, name) }
