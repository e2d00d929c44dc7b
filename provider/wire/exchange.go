package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// Emit hands on one delta; false means that nobody is listening.
type Emit func(toolcrib.Delta) bool

// Decoder reads the replies of one API. It serves one reply.
type Decoder interface {
	// Begin takes the head of the answer.
	Begin(h http.Header)
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

// Exchange sends body to path and yields the deltas of the reply, Finish last,
// or one error. It follows [toolcrib.Model]: a reply that was cut is an error,
// never a short reply.
func (c *Client) Exchange(ctx context.Context, path string, body *Body, d Decoder,
	yield func(toolcrib.Delta, error) bool,
) {
	reply, err := c.Post(ctx, path, body)
	if err != nil {
		yield(toolcrib.Delta{}, err)
		return
	}
	defer reply.Close()
	d.Begin(reply.Header)
	reply.emit = func(delta toolcrib.Delta) bool {
		reply.quiet = reply.quiet || !yield(delta, nil)
		return !reply.quiet
	}
	err = reply.decode(d)
	switch {
	case reply.quiet:
		return
	case err != nil:
		yield(toolcrib.Delta{}, err)
		return
	}
	finish := d.Finish()
	if reply.emit(toolcrib.Delta{Finish: &finish}) {
		reply.Finish()
	}
	reply.release()
}

func (r *Reply) decode(d Decoder) error {
	kind := strings.ToLower(r.Header.Get("Content-Type"))
	if _, ok := d.(LineDecoder); ok && streamsLines(kind) {
		return r.decodeStream(r.Frames(), r.lines(kind), d)
	}
	if strings.Contains(kind, "event-stream") {
		return r.decodeStream(r.Frames(), (*FrameReader).Next, d)
	}
	buf := r.client.buffer()
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
		return r.decodeStream(NewFrameReader(src, r.client.opts.MaxReplyBytes, nil), (*FrameReader).Next, d)
	}
	return r.notJSON(kind, start)
}

// notJSON is the error of a body of this content type that begins with what is no JSON object.
func (r *Reply) notJSON(kind string, start []byte) error {
	if perr := r.parent.Err(); perr != nil {
		return perr
	}
	message := "answered with no JSON object: check base_url"
	if start[0] == '<' || strings.Contains(kind, "html") {
		message = plainBody(kind, start)
	}
	return r.Mask(&toolcrib.ModelError{
		Class: toolcrib.ErrOther, Provider: r.client.opts.Name, Status: r.Status, Message: message,
		Detail: Clip(string(start), maxDetail),
	})
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

// decodeStream reads a stream, frame by frame as next finds them.
func (r *Reply) decodeStream(frames *FrameReader, next func(*FrameReader) (Frame, error), d Decoder) error {
	defer func() { r.client.keep(frames.Buffer()) }()
	for {
		f, err := next(frames)
		if err != nil {
			if d.Complete() && !errors.Is(err, ErrTooLarge) && r.parent.Err() == nil {
				return nil // only what follows the reply is missing
			}
			if stray := bytes.TrimSpace(frames.Stray()); err == io.EOF && len(stray) > 0 {
				return r.strayError(stray)
			}
			return r.broken(err)
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
		return r.Mask(EventError(r.client.opts.Name, line))
	}
	return r.Mask(&toolcrib.ModelError{
		Class: toolcrib.ErrOther, Provider: r.client.opts.Name, Status: r.Status,
		Message: "the stream holds no events: check base_url", Detail: Clip(string(line), maxDetail),
	})
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
	e := &toolcrib.ModelError{Class: toolcrib.ErrNetwork, Provider: r.client.opts.Name, Status: r.Status, Err: err}
	switch {
	case errors.Is(err, ErrTooLarge):
		e.Class, e.Message = toolcrib.ErrOther, fmt.Sprintf("the reply is longer than %d bytes", r.client.opts.MaxReplyBytes)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		e.Message = "the reply ended before it was whole"
	default:
		e.Message = "the reply could not be read: " + Line(err.Error())
	}
	return r.Mask(e)
}

// bad makes the error of a body that was read and is no reply.
func (r *Reply) bad(err error, body []byte) error {
	var known *toolcrib.ModelError
	if errors.As(err, &known) {
		return r.Mask(known)
	}
	return r.Mask(&toolcrib.ModelError{
		Class: toolcrib.ErrNetwork, Provider: r.client.opts.Name, Status: r.Status, Err: err,
		Message: "the reply was cut or is broken", Detail: Clip(string(body), maxDetail),
	})
}

// MaxCalls bounds the calls of one reply; a turn may have 64 by default.
const MaxCalls = 4096

// TooManyCalls is the error of a reply with more calls than MaxCalls.
func TooManyCalls(provider string) error {
	return &toolcrib.ModelError{
		Class: toolcrib.ErrOther, Provider: provider,
		Message: "the reply asks for too many tool calls",
	}
}

// NotAReply is the error of a body that is JSON, but not what the API answers: a chat
// completion, a message, ….
func NotAReply(provider, what string, body []byte) error {
	return &toolcrib.ModelError{
		Class: toolcrib.ErrOther, Provider: provider,
		Message: "answered with JSON that is no " + what + ": check base_url", Detail: Clip(string(body), maxDetail),
	}
}
