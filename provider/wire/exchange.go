package wire

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// Emit hands on one delta.
type Emit func(toolcrib.Delta)

// Decoder reads the replies of one API. It serves one reply. One with a method NDJSON is of
// an API that streams one JSON object a line: each comes as a [Frame], and Whole must take
// several in a row, since what streams under application/json is read in one piece.
type Decoder interface {
	// Frame reads one event of a stream. alive reports whether it was part of the
	// reply (and no ping), done that the reply is whole.
	Frame(f Frame, emit Emit) (alive, done bool, err error)
	// Whole reads a reply in one piece.
	Whole(body []byte, emit Emit) error
	// Complete reports whether the stream may end here: the API has said why the
	// model stopped.
	Complete() bool
	// Finish is the end of the reply, given only if it is complete.
	Finish() toolcrib.Finish
}

// Exchange sends body to path and yields the deltas of the reply, Finish last with the
// notices of the request, or one error. It follows [toolcrib.Model]: a reply that was cut
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
	reply.emit = func(delta toolcrib.Delta) { reply.quiet = reply.quiet || !yield(delta, nil) }
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
	reply.release()
}

func (r *Reply) decode(d Decoder) error {
	kind := strings.ToLower(r.Header.Get("Content-Type"))
	_, ndjson := d.(interface{ NDJSON() })
	buf := r.client.buffer()
	if ndjson && streamsLines(kind) || !ndjson && strings.Contains(kind, "event-stream") {
		return r.decodeStream(r, buf, kind, ndjson, d)
	}
	defer func() { r.client.keep(buf) }()
	start, err := r.start(buf)
	if err != nil {
		return r.broken(err)
	}
	first := bytes.TrimLeft(start, " \t\r\n")[0]
	switch {
	case first == '{':
		r.Spoke()
		buf, err = r.rest(start)
		if err != nil {
			return r.broken(err)
		}
		return r.decodeWhole(buf, d)
	case first != '<' && !strings.Contains(kind, "json") && !strings.Contains(kind, "html"):
		// Some servers stream under another content type, or none.
		src := io.MultiReader(bytes.NewReader(bytes.Clone(start)), r)
		return r.decodeStream(src, nil, kind, false, d)
	}
	return r.notJSON(kind, start)
}

// notJSON is the error of a body of this content type that begins with what is no JSON object.
func (r *Reply) notJSON(kind string, start []byte) error {
	if perr := r.parent.Err(); perr != nil {
		return perr
	}
	message := "answered with no JSON object: check base_url"
	if isPage(kind, start) {
		message = plainBody(kind, start)
	}
	return r.error(toolcrib.ErrOther, message, start, nil)
}

// start reads into buf until there is more than white space.
func (r *Reply) start(buf []byte) ([]byte, error) {
	buf = buf[:0]
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(bytes.TrimLeft(buf, " \t\r\n")) > 0:
			return buf, nil
		case err != nil:
			return nil, err
		case len(buf) == cap(buf):
			buf = buf[:0]
		}
	}
}

// rest reads what follows start, up to the bound of a reply.
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

func (r *Reply) decodeWhole(body []byte, d Decoder) error {
	if err := d.Whole(body, r.emit); err != nil {
		return r.bad(err, body)
	}
	if !d.Complete() {
		return r.bad(errJSON, body)
	}
	return nil
}

// streamsLines reports whether a body of this content type is read line by line.
// Plain JSON, and what has no type, is read whole: it may stand on many lines.
func streamsLines(kind string) bool {
	if strings.Contains(kind, "json") {
		return strings.Contains(kind, "ndjson") || strings.Contains(kind, "jsonl") || strings.Contains(kind, "json-seq")
	}
	return kind != ""
}

// decodeStream reads a stream of that content type, with buf to begin with.
func (r *Reply) decodeStream(src io.Reader, buf []byte, kind string, ndjson bool, d Decoder) error {
	frames := NewFrameReader(src, r.client.opts.MaxReplyBytes, buf)
	frames.NDJSON = ndjson
	defer func() { r.client.keep(frames.Buffer()) }()
	for first := true; ; first = false {
		f, err := frames.Next()
		if err == nil && first && ndjson && f.Data[0] != '{' {
			err = r.notJSON(kind, f.Data)
		}
		if err != nil {
			if d.Complete() && !errors.Is(err, ErrTooLarge) && r.parent.Err() == nil {
				return nil // only what follows the reply is missing
			}
			if stray := bytes.TrimSpace(frames.Stray()); err == io.EOF && len(stray) > 0 {
				return r.strayError(stray)
			}
			return r.broken(err)
		}
		if len(f.Data) == 0 {
			continue
		}
		if string(f.Data) == "[DONE]" && d.Complete() {
			return nil // some servers of other APIs than OpenAI's end so too
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

// broken makes the error of a body that could not be read to its end.
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

// bad makes the error of a body that was read and is no reply.
func (r *Reply) bad(err error, body []byte) error {
	var known *toolcrib.ModelError
	if errors.As(err, &known) {
		return r.mask(known)
	}
	return r.error(toolcrib.ErrNetwork, "the reply was cut or is broken", body, err)
}

// MaxCalls bounds the calls of one reply; a turn may have 64 by default.
const MaxCalls = 4096

// TooManyCalls is the error of a reply with more calls than MaxCalls.
func TooManyCalls() error {
	return &toolcrib.ModelError{Class: toolcrib.ErrOther, Message: "the reply asks for too many tool calls"}
}

// NotAReply is the error of a body that is JSON, but not what the API answers: a chat
// completion, a message, ….
func NotAReply(what string, body []byte) error {
	return &toolcrib.ModelError{
		Class: toolcrib.ErrOther, Message: "answered with JSON that is no " + what + ": check base_url",
		Detail: Clip(string(body), maxDetail),
	}
}
