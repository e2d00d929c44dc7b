package toolcrib

import "strings"

// ReplyBuilder joins the deltas of one reply. The zero value is ready to use. It keeps the order in
// which blocks first appeared.
type ReplyBuilder struct {
	blocks   []*block       // pointers: a strings.Builder must not be copied
	call     *block         // call of the last delta
	calls    map[int]*block // by the index of their deltas; nil if there is only one call
	finish   Finish
	finished bool
	bytes    int
}

type block struct {
	text     strings.Builder
	thinking bool
	closed   bool // a finished block of reasoning
	index    int  // index of a call
	part     Part
}

// Add adds the next delta.
func (b *ReplyBuilder) Add(d Delta) {
	b.bytes += len(d.Text) + len(d.Thinking) + len(d.Signature) + len(d.Redacted)
	switch {
	case d.Text != "":
		b.open(false).text.WriteString(d.Text)
	case d.Thinking != "":
		b.open(true).text.WriteString(d.Thinking)
	case d.Signature != "":
		k := b.open(true)
		k.part.Thinking = &Thinking{Signature: d.Signature}
		k.closed = true
	case d.Redacted != "":
		b.blocks = append(b.blocks, &block{
			closed: true, thinking: true,
			part: Part{Thinking: &Thinking{Redacted: d.Redacted}},
		})
	case d.ToolCall != nil:
		b.addCall(d.ToolCall)
	case d.Finish != nil:
		b.finish, b.finished = *d.Finish, true
	}
}

// open returns the block to which text of this kind is added: the last block, or a new one if that is
// of another kind.
func (b *ReplyBuilder) open(thinking bool) *block {
	if n := len(b.blocks); n > 0 {
		k := b.blocks[n-1]
		if k.part.ToolCall == nil && !k.closed && k.thinking == thinking {
			return k
		}
	}
	k := &block{thinking: thinking}
	b.blocks = append(b.blocks, k)
	return k
}

func (b *ReplyBuilder) addCall(d *ToolCallDelta) {
	b.bytes += len(d.Arguments) + len(d.Name) + len(d.ID)
	k := b.callAt(d.Index)
	if d.ID != "" {
		k.part.ToolCall.ID = d.ID
	}
	if d.Name != "" {
		k.part.ToolCall.Name = d.Name
	}
	if d.Signature != "" {
		k.part.ToolCall.Signature = d.Signature
	}
	if d.Problem != "" {
		k.part.ToolCall.Problem, k.part.ToolCall.Malformed = d.Problem, true
	}
	k.text.WriteString(d.Arguments)
}

// callAt returns the block of the call with this index. It adds one for a new call.
func (b *ReplyBuilder) callAt(index int) *block {
	last := b.call
	switch {
	case last != nil && last.index == index:
		return last
	case last != nil && b.calls == nil:
		b.calls = map[int]*block{last.index: last}
	}
	if b.call = b.calls[index]; b.call == nil {
		b.call = &block{index: index, part: Part{ToolCall: &ToolCall{}}}
		b.blocks = append(b.blocks, b.call)
		if last != nil {
			b.calls[index] = b.call
		}
	}
	return b.call
}

// Bytes returns the size of the added deltas.
func (b *ReplyBuilder) Bytes() int { return b.bytes }

// Finished reports whether the end of the reply was added.
func (b *ReplyBuilder) Finished() bool { return b.finished }

// Started reports whether any part of an answer was added.
func (b *ReplyBuilder) Started() bool { return len(b.blocks) > 0 }

// Reply returns the reply. The arguments of its calls are the text that the model sent, byte for byte,
// which need not be JSON: the caller must parse them strictly before any other use.
func (b *ReplyBuilder) Reply() Reply {
	m := Message{Role: RoleAssistant, Parts: make([]Part, 0, len(b.blocks))}
	for _, k := range b.blocks {
		switch {
		case k.part.ToolCall != nil:
			call := *k.part.ToolCall
			call.Arguments = []byte(k.text.String())
			m.Parts = append(m.Parts, Part{ToolCall: &call})
		case k.thinking:
			t := Thinking{}
			if k.part.Thinking != nil {
				t = *k.part.Thinking
			}
			t.Text = k.text.String()
			m.Parts = append(m.Parts, Part{Thinking: &t})
		default:
			m.Parts = append(m.Parts, Part{Text: k.text.String()})
		}
	}
	return Reply{Message: m, Finish: b.finish}
}
