package openai

import (
	"cmp"
	"strconv"

	"github.com/toolcrib/toolcrib/provider/wire"
)

// detail is one element of reasoning_details (OpenRouter, "Preserving reasoning"):
// a text with its signature, a summary, or encrypted data. The server wants the
// list back as it gave it, the pieces of one element joined.
type detail struct {
	Kind      string      `json:"type"`
	ID        string      `json:"id"`
	Format    string      `json:"format"`
	Text      string      `json:"text"`
	Summary   string      `json:"summary"`
	Data      string      `json:"data"`
	Signature string      `json:"signature"`
	Index     wire.Number `json:"index"`
}

// details collects them over the frames of a reply.
type details struct{ list []detail }

// addAll adds the list of one frame and returns the text of it that a person may read.
func (d *details) addAll(list []detail) (text string) {
	for i := range list {
		if one := &list[i]; one.Kind != "" {
			text += one.Text + one.Summary
			d.add(one)
		}
	}
	return text
}

// add joins a piece with the element that it continues.
func (d *details) add(one *detail) {
	if n := len(d.list); n > 0 {
		last := &d.list[n-1]
		same := last.Kind == one.Kind && last.Index.Value == one.Index.Value &&
			(one.ID == "" || last.ID == "" || last.ID == one.ID)
		if same && one.Kind != "reasoning.encrypted" && last.Signature == "" {
			last.Text += one.Text
			last.Summary += one.Summary
			last.Signature = one.Signature
			last.ID, last.Format = cmp.Or(last.ID, one.ID), cmp.Or(last.Format, one.Format)
			return
		}
	}
	d.list = append(d.list, *one)
}

// take encodes the list, once; "" = none.
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
	b = wire.AppendString(b, d.Kind)
	member := func(name, value string, always bool) {
		if value != "" || always {
			b = append(append(append(b, `,"`...), name...), `":`...)
			b = wire.AppendString(b, value)
		}
	}
	member("text", d.Text, d.Kind == "reasoning.text")
	member("summary", d.Summary, d.Kind == "reasoning.summary")
	member("data", d.Data, d.Kind == "reasoning.encrypted")
	member("signature", d.Signature, false)
	member("id", d.ID, false)
	member("format", d.Format, false)
	if d.Index.Given {
		b = strconv.AppendInt(append(b, `,"index":`...), d.Index.Value, 10)
	}
	return append(b, '}')
}
