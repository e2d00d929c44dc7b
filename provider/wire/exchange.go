package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// Emit hands on one delta; false means that nobody listens any more.
type Emit func(toolcrib.Delta) bool

// Decoder reads the replies of one API. It serves one reply.
type Decoder interface {
	// Begin is told the head of the answer.
	Begin(h http.Header)
	// Frame reads one event of a stream. alive tells whether it was part of the
	// reply (and no ping), done that the reply is whole.
	Frame(f Frame, emit Emit) (alive, done bool, err error)
	// Whole reads a reply in one piece.
	Whole(body []byte, emit Emit) error
	// Complete tells whether the stream may end here: the API has said why the
	// model stopped.
	Complete() bool
	// Finish is the end of the reply, given only if it is complete.
	Finish() toolcrib.Finish
}

// Exchange sends body to path and yields the deltas of the reply, Finish last,
// or one error. It follows [toolcrib.Model]: a reply that was cut is an error,
// never a short reply.
func (c *Client) Exchange(ctx context.Context, path string, body *Segments, d Decoder, yield func(toolcrib.Delta, error) bool) {
	reply, err := c.Post(ctx, path, body)
	if err != nil {
		yield(toolcrib.Delta{}, err)
		return
	}
	defer reply.Close()
	d.Begin(reply.Header)
	listening := true
	emit := func(delta toolcrib.Delta) bool {
		listening = listening && yield(delta, nil)
		return listening
	}
	if err := reply.decode(d, emit); err != nil {
		if listening {
			yield(toolcrib.Delta{}, err)
		}
		return
	}
	if !listening {
		return
	}
	finish := d.Finish()
	if emit(toolcrib.Delta{Finish: &finish}) {
		reply.Finish()
	}
}

func (r *Reply) decode(d Decoder, emit Emit) error {
	kind := strings.ToLower(r.Header.Get("Content-Type"))
	if strings.Contains(kind, "event-stream") {
		return r.decodeFrames(r.Frames(), d, emit)
	}
	src := bufio.NewReader(r)
	first, err := firstByte(src)
	if err != nil {
		return r.broken(err)
	}
	switch {
	case first == '{':
		return r.decodeWhole(src, d, emit)
	case first != '<' && !strings.Contains(kind, "json") && !strings.Contains(kind, "html"):
		// Some servers stream under another content type, or none.
		return r.decodeFrames(NewFrameReader(src, r.client.opts.MaxReplyBytes, nil), d, emit)
	}
	start, err := io.ReadAll(io.LimitReader(src, maxErrorBody))
	if perr := r.parent.Err(); perr != nil {
		return perr
	}
	message := "answered with no JSON: check base_url"
	if err == nil {
		message = Line(plainBody(kind, start))
	}
	return r.Mask(&toolcrib.ModelError{Class: toolcrib.ErrOther, Provider: r.client.opts.Name, Status: r.Status, Message: message, Detail: Clip(string(start), maxDetail)})
}

func firstByte(src *bufio.Reader) (byte, error) {
	for {
		b, err := src.ReadByte()
		if err != nil {
			return 0, err
		}
		switch b {
		case ' ', '\t', '\r', '\n':
			continue
		}
		return b, src.UnreadByte()
	}
}

func (r *Reply) decodeWhole(src io.Reader, d Decoder, emit Emit) error {
	r.Spoke()
	limit := r.client.opts.MaxReplyBytes
	body, err := io.ReadAll(io.LimitReader(src, limit+1))
	if err == nil && int64(len(body)) > limit {
		err = ErrTooLarge
	}
	if err != nil {
		return r.broken(err)
	}
	if err := d.Whole(body, emit); err != nil {
		return r.bad(err, body)
	}
	if !d.Complete() {
		return r.bad(errJSON, body)
	}
	return nil
}

func (r *Reply) decodeFrames(frames *FrameReader, d Decoder, emit Emit) error {
	defer r.Release(frames)
	listening := true
	watch := func(delta toolcrib.Delta) bool {
		listening = emit(delta)
		return listening
	}
	for {
		f, err := frames.Next()
		if err != nil {
			if d.Complete() && !errors.Is(err, ErrTooLarge) && r.parent.Err() == nil {
				return nil // only what follows the reply is missing
			}
			if stray := bytes.TrimSpace(frames.Stray()); err == io.EOF && len(stray) > 0 {
				return r.strayError(stray)
			}
			return r.broken(err)
		}
		alive, done, err := d.Frame(f, watch)
		if err != nil {
			return r.bad(err, f.Data)
		}
		if !listening || done {
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
