package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

const (
	maxSkipped  = 4 << 30     // bytes of a message that is not kept
	maxSkipping = time.Minute // how long such a message may take
	maxWord     = 300         // bytes of a name or an ID in such a message
	maxSkips    = 1000        // messages in it, if it is a batch

	// codeTooLong is the code of the error that replaces an answer that is too long; servers do not use it. Its data
	// is the size in bytes.
	codeTooLong = -maxMessage
	// tooLongMethod replaces the method of a request that is too long, so that it is answered like an unknown one.
	tooLongMethod = "toolcrib/too_long"
)

// message collects the text of a message. A message that is too long affects only its own call: of its text only the
// ID is kept, wherever it is, and the call gets an error instead.
type message struct {
	kept []byte
	size int64
	of   outline
	long time.Time // when it became too long
}

// Write implements [io.Writer]. It fails if a text that is too long cannot be a message.
func (m *message) Write(part []byte) (int, error) {
	if m.size += int64(len(part)); m.size <= maxMessage {
		m.kept = append(m.kept, part...)
		return len(part), nil
	}
	m.of.read(m.kept)
	m.of.read(part)
	m.kept = nil
	if m.long.IsZero() {
		m.long = time.Now()
	}
	if m.of.bad || m.size > maxSkipped || time.Since(m.long) > maxSkipping {
		return 0, errTooLong
	}
	return len(part), nil
}

// readLine reads a line, or the rest of one.
func (m *message) readLine(from *bufio.Reader) error {
	for {
		part, err := from.ReadSlice('\n')
		if _, e := m.Write(part); e != nil {
			return e
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// text returns the text, or the text of the errors that replace a message that is too long. It is empty if no call
// waits for that message.
func (m *message) text() ([]byte, error) {
	if m.size <= maxMessage {
		return bytes.TrimSpace(m.kept), nil
	}
	if m.of.depth != 0 || !m.of.isRPC {
		return nil, errTooLong
	}
	var list [][]byte
	for _, one := range m.of.skipped {
		text := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%q}`, one.id, tooLongMethod)
		if !one.request {
			text = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q,"data":%d}}`,
				one.id, codeTooLong, "it "+tooLongText(m.size), m.size)
		}
		list = append(list, text)
	}
	if len(list) < 2 {
		return bytes.Join(list, nil), nil
	}
	return fmt.Appendf(nil, "[%s]", bytes.Join(list, []byte(","))), nil
}

func tooLongText(size int64) string {
	return fmt.Sprintf("answered with %d bytes (%.1f MiB), and at most %d MiB are read",
		size, float64(size)/(1<<20), maxMessage>>20)
}

// tooLong reports whether an error replaces an answer that is too long, and returns a text about it.
func tooLong(e *jsonrpc.Error) (text string, ok bool) {
	var size int64
	ok = e != nil && e.Code == codeTooLong && json.Unmarshal(e.Data, &size) == nil
	return tooLongText(size), ok
}

// outline reads JSON part by part, in bounded memory, for the IDs of the messages in it.
type outline struct {
	depth, base     int // base is the depth of the members of a message: 1, and 2 in a batch
	inText, escaped bool
	word            []byte // the name or value at base that is being read
	name            string
	now             skipped
	skipped         []skipped
	isRPC, bad      bool
}

// skipped is a message whose text is not kept.
type skipped struct {
	id      json.RawMessage
	request bool
}

func (o *outline) read(part []byte) {
	for i := 0; i < len(part) && !o.bad; i++ {
		if o.inText && !o.escaped && o.depth != o.base {
			n := bytes.IndexAny(part[i:], `"\`)
			if n < 0 {
				return
			}
			i += n
		}
		o.next(part[i])
	}
}

func (o *outline) next(b byte) {
	inside := o.depth > 0 && o.depth == o.base
	switch {
	case o.escaped:
		o.escaped = false
	case o.inText:
		o.escaped, o.inText = b == '\\', b != '"'
	case b == '"':
		o.inText = true
	case b == '{', b == '[':
		if o.depth++; o.depth == 1 {
			o.base = 1
			if b == '[' {
				o.base = 2
			}
		}
		return
	case b == '}', b == ']':
		if inside {
			o.member()
			o.end()
		}
		o.depth--
		return
	case inside && b == ':':
		o.name = ""
		_ = json.Unmarshal(o.word, &o.name) // a text that is not a name is not a member that is looked for
		o.word = o.word[:0]
		return
	case inside && b == ',':
		o.member()
		return
	}
	if inside && len(o.word) < maxWord {
		o.word = append(o.word, b)
	}
	if o.depth <= 0 && b > ' ' {
		o.bad = true
	}
}

// member ends a member of a message.
func (o *outline) member() {
	switch value := bytes.TrimSpace(o.word); {
	case o.name == "jsonrpc":
		o.isRPC = true
	case o.name == "method":
		o.now.request = true
	case o.name == "id" && json.Valid(value) && string(value) != "null":
		o.now.id = bytes.Clone(value)
	}
	o.name, o.word = "", o.word[:0]
}

// end ends a message.
func (o *outline) end() {
	if o.now.id != nil && len(o.skipped) < maxSkips {
		o.skipped = append(o.skipped, o.now)
	}
	o.now = skipped{}
}
