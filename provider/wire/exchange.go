package wire

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolcrib/toolcrib"
)

// Emit passes on one delta.
type Emit func(toolcrib.Delta)

// Decoder decodes one reply of an API. A Decoder with a method NDJSON is for an
// API whose replies are a sequence of JSON objects, each a [Frame].
type Decoder interface {
	// Frame reads one event of a stream. alive reports whether it was part of the
	// reply (and not a ping), done whether the reply is complete.
	Frame(f Frame, emit Emit) (alive, done bool, err error)
	// Whole reads a reply that is not a stream.
	Whole(body []byte, emit Emit) error
	// Complete reports whether the stream may end here, because the API has sent the reason
	// why the model stopped.
	Complete() bool
	// Finish returns the end of the reply; it is only called if the reply is complete.
	Finish() toolcrib.Finish
}

// Exchange sends body to path and yields the deltas of the reply, Finish last with the
// notices of the request, or one error. As [toolcrib.Model] requires, a truncated reply
// is an error, never a short reply.
func (h *History) Exchange(ctx context.Context, path string, body *Body, d Decoder,
	yield func(toolcrib.Delta, error) bool,
) {
	reply, err := h.client.Post(ctx, path, body)
	if err != nil {
		yield(toolcrib.Delta{}, err)
		return
	}
	defer reply.Close()
	in := reading{out: func(delta toolcrib.Delta) { reply.quiet = reply.quiet || !yield(delta, nil) }}
	reply.emit = in.add
	err = reply.decode(d)
	switch {
	case reply.quiet:
		return
	case err != nil:
		yield(toolcrib.Delta{}, err)
		return
	}
	finish := d.Finish()
	finish.Notices = append(slices.Clip(h.Notices), finish.Notices...)
	finish.RequestID = cmp.Or(finish.RequestID, reply.Header.Get("Request-Id"), reply.Header.Get("X-Request-Id"))
	if reply.emit(toolcrib.Delta{Finish: &finish}); !reply.quiet {
		reply.Finish()
	}
}

// decode decodes a reply by its first bytes, because content types are often wrong.
func (r *Reply) decode(d Decoder) error {
	start, err := r.start(make([]byte, 0, r.firstBytes()))
	if err != nil {
		return r.broken(err)
	}
	first := opening(start)
	_, lines := d.(interface{ NDJSON() })
	lines = lines && first[0] == '{'
	switch {
	case lines, isField(first):
		return r.decodeStream(start[:copy(start, first)], lines, d)
	case first[0] == '{' || first[0] == '[':
		r.Spoke()
		body, err := r.rest(start)
		if err != nil {
			return r.broken(err)
		}
		return r.decodeWhole(body, d)
	default:
		return r.notJSON(first)
	}
}

// firstBytes returns the size of the first buffer. That of a whole body has one byte more, to find its end.
func (r *Reply) firstBytes() int {
	if r.size < 0 {
		return readBytes
	}
	return int(min(max(r.size+1, 512), 64<<10))
}

// opening returns a body without leading space and byte order mark.
func opening(body []byte) []byte {
	return bytes.TrimLeft(bytes.TrimPrefix(bytes.TrimLeft(body, " \t\r\n"), bom), " \t\r\n")
}

// isField reports whether a text begins with a field or a comment of server-sent events.
func isField(text []byte) bool {
	name, _, ok := bytes.Cut(text[:min(len(text), maxField)], colon)
	return ok && slices.Contains(fields[:], string(name))
}

// beginsField reports whether a text is the beginning of such a field.
func beginsField(text []byte) bool {
	return slices.ContainsFunc(fields[:], func(name string) bool { return strings.HasPrefix(name, string(text)) })
}

var fields = [...]string{"", "data", "event", "id", "retry", "error"}

const maxField = len("retry:")

// notJSON returns the error of a body that begins with neither JSON nor an event.
func (r *Reply) notJSON(start []byte) error {
	if perr := r.parent.Err(); perr != nil {
		return perr
	}
	kind, message := r.Header.Get("Content-Type"), "answered with no JSON object: check base_url"
	if isPage(kind, start) {
		message = plainBody(kind, start)
	} else if said := Line(string(start)); said != "" {
		message = "answered with text and no JSON object: " + said + " (check base_url)"
	}
	return r.error(toolcrib.ErrOther, message, start, nil)
}

// start reads into buf until it has the beginning that decode needs.
func (r *Reply) start(buf []byte) ([]byte, error) {
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		first := opening(buf)
		switch {
		case len(first) >= maxField, bytes.ContainsAny(first, "{[<:\n"), err == io.EOF && !beginsField(first):
			return buf, nil
		case err != nil:
			return buf, err
		case len(buf) == cap(buf):
			buf = buf[:copy(buf, first)]
		}
	}
}

// rest reads the rest of the body, up to the bound of a reply.
func (r *Reply) rest(buf []byte) ([]byte, error) {
	limit := r.client.opts.MaxReplyBytes
	for int64(len(buf)) <= limit {
		if r.eof {
			return buf, nil
		}
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, len(buf))
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
	return buf, ErrTooLarge
}

// decodeWhole decodes a body that is not a stream of events: one JSON value, or several, which
// are the chunks of a stream without its framing.
func (r *Reply) decodeWhole(body []byte, d Decoder) error {
	values, err := valuesOf(opening(body))
	switch {
	case err != nil:
	case len(values) == 1:
		err = d.Whole(values[0], r.emit)
	default:
		for done := false; err == nil && !done && len(values) > 0; values = values[1:] {
			_, done, err = d.Frame(Frame{Data: values[0]}, r.emit)
		}
	}
	if err == nil && !d.Complete() {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return r.bad(err, body)
	}
	return nil
}

// valuesOf returns the elements of a list, or the values of a sequence.
func valuesOf(body []byte) (values []json.RawMessage, err error) {
	switch {
	case body[0] == '[':
		err = json.Unmarshal(body, &values)
		return values, err
	case jsontext.Value(body).IsValid(replies):
		return []json.RawMessage{body}, nil
	}
	for in := jsontext.NewDecoder(bytes.NewBuffer(body), replies); ; {
		value, err := in.ReadValue()
		switch end := int(in.InputOffset()); {
		case err == io.EOF:
			return values, nil
		case err != nil:
			return nil, err
		default:
			values = append(values, body[end-len(value):end])
		}
	}
}

func (r *Reply) decodeStream(start []byte, lines bool, d Decoder) error {
	frames := NewFrameReader(r, r.client.opts.MaxReplyBytes, start)
	frames.NDJSON = lines
	for {
		f, err := frames.Next()
		if err != nil {
			if d.Complete() && !errors.Is(err, ErrTooLarge) && r.parent.Err() == nil {
				return nil // only data after the reply is missing
			}
			if stray := bytes.TrimSpace(frames.Stray()); err == io.EOF && len(stray) > 0 {
				return r.strayError(stray)
			}
			return r.broken(err)
		}
		switch {
		case len(f.Data) == 0:
			continue
		case string(f.Data) == "[DONE]" && d.Complete():
			return nil // some servers of other APIs than OpenAI's also end like this
		case string(f.Event) == "error" && (f.Data[0] != '{' || json.Valid(f.Data)):
			return r.bad(EventError(f.Data), f.Data)
		}
		alive, done, err := d.Frame(f, r.emit)
		if err != nil {
			return r.bad(err, f.Data)
		}
		if r.quiet || done {
			return nil
		}
		if alive {
			r.Spoke()
		}
	}
}

func (r *Reply) strayError(line []byte) error {
	if e, ok := ParseAPIError(line); ok && e.Message != "" {
		return r.mask(EventError(line))
	}
	return r.error(toolcrib.ErrOther, "the stream holds no events: check base_url", line, nil)
}

// broken returns the error of a body that could not be read completely.
func (r *Reply) broken(err error) error {
	var known *toolcrib.ModelError
	if errors.As(err, &known) {
		return err
	}
	if perr := r.parent.Err(); perr != nil {
		return perr
	}
	class, message := toolcrib.ErrNetwork, "the reply could not be read: "+Line(err.Error())
	switch {
	case errors.Is(err, ErrTooLarge):
		class, message = toolcrib.ErrOther, fmt.Sprintf("the reply is longer than %d bytes", r.client.opts.MaxReplyBytes)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		message = "the reply is incomplete"
	}
	return r.error(class, message, nil, err)
}

// bad returns the error of a body that was read but is not a reply.
func (r *Reply) bad(err error, body []byte) error {
	var known *toolcrib.ModelError
	if errors.As(err, &known) {
		return r.mask(known)
	}
	message := "the reply was cut or is broken"
	if text := opening(body); len(text) > 0 && text[0] != '{' && text[0] != '[' {
		message += ": " + Line(string(text)) // the server's own words
	}
	return r.error(toolcrib.ErrNetwork, message, body, err)
}

// MaxCalls bounds the calls of one reply; the default limit of a turn is 64.
const MaxCalls = 4096

// TooManyCalls returns the error of a reply with more calls than MaxCalls.
func TooManyCalls() error {
	return &toolcrib.ModelError{Class: toolcrib.ErrOther, Message: "the reply asks for too many tool calls"}
}

// NotAReply returns the error of a body that is JSON, but not the reply of the API: a chat
// completion, a message, ….
func NotAReply(what string, body []byte) error {
	return &toolcrib.ModelError{
		Class: toolcrib.ErrOther, Message: "answered with JSON that is no " + what + ": check base_url",
		Detail: Clip(string(body), maxDetail),
	}
}
