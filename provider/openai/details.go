package openai

import (
	"strconv"

	"github.com/toolcrib/toolcrib/provider/wire"
)

// detail is one element of reasoning_details (OpenRouter, "Preserving reasoning"):
// a text with its signature, a summary, or encrypted data. The server wants the
// list back as it gave it, the pieces of one element joined.
type detail struct {
	kind, id, format               string
	text, summary, data, signature string
	index                          int64
	indexed                        bool
}

// details collects them over the frames of a reply.
type details struct{ list []detail }

// read reads the list of one frame and returns the text of it that a person may
// read.
func (d *details) read(c *wire.Cursor) (text string) {
	if !c.Enter('[') {
		return ""
	}
	for c.Next() {
		one := readDetail(c)
		if one.kind == "" {
			continue
		}
		text += one.text + one.summary
		d.add(&one)
	}
	return text
}

func readDetail(c *wire.Cursor) (d detail) {
	if !c.Enter('{') {
		return d
	}
	for {
		key, ok := c.Key()
		if !ok {
			return d
		}
		switch string(key) {
		case "type":
			d.kind = readText(c)
		case "id":
			d.id = readText(c)
		case "format":
			d.format = readText(c)
		case "text":
			d.text = readText(c)
		case "summary":
			d.summary = readText(c)
		case "data":
			d.data = readText(c)
		case "signature":
			d.signature = readText(c)
		case "index":
			if b := c.Peek(); b >= '0' && b <= '9' {
				d.index, d.indexed = c.Int(), true
				continue
			}
			c.Skip()
		default:
			c.Skip()
		}
	}
}

// add joins a piece with the element that it goes on.
func (d *details) add(one *detail) {
	if n := len(d.list); n > 0 {
		last := &d.list[n-1]
		same := last.kind == one.kind && last.index == one.index && (one.id == "" || last.id == "" || last.id == one.id)
		if same && one.kind != "reasoning.encrypted" && last.signature == "" {
			last.text += one.text
			last.summary += one.summary
			last.signature = one.signature
			last.id, last.format = first(last.id, one.id), first(last.format, one.format)
			return
		}
	}
	d.list = append(d.list, *one)
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// take encodes the list, once; "" = there is none.
func (d *details) take() string {
	if len(d.list) == 0 {
		return ""
	}
	b := []byte{'['}
	for i := range d.list {
		if i > 0 {
			b = append(b, ',')
		}
		b = d.list[i].appendTo(b)
	}
	d.list = nil
	return string(append(b, ']'))
}

func (d *detail) appendTo(b []byte) []byte {
	b = append(b, `{"type":`...)
	b = wire.AppendString(b, d.kind)
	member := func(name, value string, always bool) {
		if value != "" || always {
			b = append(append(append(b, `,"`...), name...), `":`...)
			b = wire.AppendString(b, value)
		}
	}
	member("text", d.text, d.kind == "reasoning.text")
	member("summary", d.summary, d.kind == "reasoning.summary")
	member("data", d.data, d.kind == "reasoning.encrypted")
	member("signature", d.signature, false)
	member("id", d.id, false)
	member("format", d.format, false)
	if d.indexed {
		b = strconv.AppendInt(append(b, `,"index":`...), d.index, 10)
	}
	return append(b, '}')
}
