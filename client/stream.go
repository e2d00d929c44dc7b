package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/journal"
)

// Event is an event of a run. Seq is 0 if it is not stored.
type Event struct {
	Seq  toolcrib.Seq
	Name string // kind, such as tool_call
	Data json.RawMessage
}

// Frame returns the event with its data decoded by its kind. Data of an unknown kind stays JSON.
func (e Event) Frame() (journal.Frame, error) { return journal.ReadFrame(e.Seq, e.Name, e.Data) }

// Begin sends a request that starts or continues a run (POST /api/runs, …/resume, …/fork), and calls do for its
// events until it ends or pauses. run is "" for a new run, and after the last known event. A lost connection is
// made again: an Idempotency-Key ensures that only one run begins, and no stored event is missed or repeated. If
// do returns an error, Begin returns it.
func (c *Client) Begin(
	ctx context.Context, path string, body any, run toolcrib.RunID, after toolcrib.Seq, do func(Event) error,
) (toolcrib.RunID, error) {
	f := &following{c: c, run: run, after: after, until: UntilPause, do: do}
	first := request{
		method: http.MethodPost, path: path, body: body, events: true, key: rand.Text(),
		query: Query{"after": after, "attends": c.attends},
	}
	begun := false
	err := f.follow(ctx, func() request {
		// Before the first event it is not known whether the run has begun.
		if begun = begun || f.heard; begun && f.run != "" {
			return f.events()
		}
		return first
	})
	return f.run, err
}

// Until is the end of a stream of events.
type Until string

const (
	UntilNow   Until = "now"   // after the stored events
	UntilPause Until = "pause" // when the run pauses or ends
	UntilEnd   Until = "end"   // when the run ends
)

// Follow calls do for the events of a run after an event. A lost connection is made again, and no stored event is
// missed or repeated.
func (c *Client) Follow(
	ctx context.Context, run toolcrib.RunID, after toolcrib.Seq, until Until, do func(Event) error,
) error {
	f := &following{c: c, run: run, after: after, until: until, do: do}
	return f.follow(ctx, f.events)
}

// following follows a run over one or more connections.
type following struct {
	c     *Client
	run   toolcrib.RunID
	after toolcrib.Seq
	until Until
	do    func(Event) error
	heard bool // whether an event was received
	ended bool // whether the last event was received
	fault error
	open  time.Time // when the last stream was opened
}

func (f *following) events() request {
	return request{
		method: http.MethodGet, path: Path("runs", string(f.run), "events"), events: true, after: f.after,
		query: Query{"until": f.until, "attends": f.c.attends},
	}
}

// follow reads streams until the run has ended or paused. If the first request cannot be sent, it is not retried.
// Later the server may be unreachable for a while.
func (f *following) follow(ctx context.Context, next func() request) error {
	var since time.Time // time of the first of consecutive failures
	pause := firstPause
	for tried := false; ; tried = true {
		from := f.after
		f.open = time.Time{}
		err := f.once(ctx, next())
		// The stream of a waiting run has no events for long.
		lasted := !f.open.IsZero() && time.Since(f.open) > longestPause
		switch {
		case err == nil || f.fault != nil:
			return f.fault
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case tried && !f.heard && f.run != "" && toolcrib.CodeOf(err) == toolcrib.CodeConflict:
			f.heard = true // the interrupted request has continued the run
			continue
		case !f.again(err, tried):
			return err
		}
		if f.after > from || lasted || since.IsZero() {
			if f.c.o.Lost != nil && since.IsZero() {
				f.c.o.Lost(err)
			}
			since, pause = time.Now(), firstPause
		}
		if time.Since(since) > f.c.o.Patience {
			return err
		}
		var e *toolcrib.Error
		if errors.As(err, &e) {
			pause = max(pause, min(e.RetryAfter, longestPause))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		pause = min(2*pause, longestPause)
	}
}

// again reports whether to retry.
func (f *following) again(err error, tried bool) bool {
	var lost *UnreachableError
	if errors.As(err, &lost) {
		return tried || f.heard || lost.Sent()
	}
	return toolcrib.CodeOf(err) == toolcrib.CodeOverloaded && (tried || f.heard)
}

// once reads one stream. It returns nil if no more events will follow.
func (f *following) once(ctx context.Context, r request) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer quiet.Stop()
	answer, err := f.c.request(ctx, r)
	if err != nil {
		return err
	}
	defer answer.Body.Close() //nolint:errcheck // only read
	f.open = time.Now()
	lines := bufio.NewReaderSize(answer.Body, 64<<10)
	var e Event
	for {
		line, err := readLine(lines)
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return f.over(ctx)
		case err != nil:
			return f.c.unreachable(ctx, err)
		}
		quiet.Reset(silence)
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			n, _ := strconv.ParseInt(value, 10, 64) // if invalid, the event is not stored
			e.Seq = toolcrib.Seq(n)
		case "event":
			e.Name = value
		case "data":
			if e.Data = append(e.Data, value...); len(e.Data) > maxLine {
				return toolcrib.Errorf(toolcrib.CodeTooLarge, "an event has more than %d bytes", maxLine)
			}
		case "":
			if line != "" || e.Name == "" { // a ping
				continue
			}
			if err := f.take(e); err != nil {
				return err
			}
			if e = (Event{}); f.ended {
				return nil
			}
		}
	}
}

var errSilent = errors.New("nothing came for a minute")

// take passes an event to do, unless it was passed before.
func (f *following) take(e Event) error {
	if e.Name == "closed" { // the server ends the stream with an error
		var why api.Failure
		if err := json.Unmarshal(e.Data, &why); err != nil || why.Error == "" {
			return &UnreachableError{URL: f.c.base.String(), Err: errors.New("the stream was closed")}
		}
		return errorOf(&why)
	}
	if e.Seq > 0 && e.Seq <= f.after {
		return nil
	}
	f.heard = true
	if e.Seq > 0 {
		f.after = e.Seq
	}
	if f.run == "" && e.Name == string(journal.KindRunStarted) {
		var started journal.StartedView
		if err := json.Unmarshal(e.Data, &started); err != nil {
			return fmt.Errorf("the first event cannot be read: %w", err)
		}
		f.run = started.RunID
	}
	f.ended = e.Name == string(journal.KindDone) || e.Name == string(journal.KindError)
	if f.fault = f.do(e); f.fault != nil {
		return f.fault
	}
	return nil
}

// over returns nil if no more events follow a stream that has ended properly. A proxy may have ended it.
func (f *following) over(ctx context.Context) error {
	cut := &UnreachableError{URL: f.c.base.String(), Err: io.ErrUnexpectedEOF}
	switch {
	case f.until == UntilNow:
		return nil
	case f.run == "":
		return cut
	}
	var run api.Run
	if err := f.c.Get(ctx, Path("runs", string(f.run)), nil, &run); err != nil {
		return err
	}
	if run.Status.Ended() && run.LastSeq <= f.after || f.until == UntilPause && run.Status.Parked() {
		return nil
	}
	return cut
}

// readLine reads a line of at most maxLine bytes, and returns it without the newline.
func readLine(r *bufio.Reader) (string, error) {
	var line []byte
	for {
		piece, err := r.ReadSlice('\n')
		if line = append(line, piece...); len(line) > maxLine {
			return "", toolcrib.Errorf(toolcrib.CodeTooLarge, "an event has more than %d bytes", maxLine)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return string(bytes.TrimRight(line, "\r\n")), err
	}
}
