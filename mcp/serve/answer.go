package serve

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// answer writes to a client. Writes have a deadline, for clients that do not read; an idle stream gets comments; and
// error texts of the SDK are written as the front end writes errors.
type answer struct {
	to      http.ResponseWriter
	control *http.ResponseController
	header  http.Header // header until it is written
	fail    func(status int, text string)
	streams bool // it becomes a stream, unless it has begun as something else

	mu     sync.Mutex
	begun  bool
	early  bool // a comment began it
	failed int  // status of an error whose text comes next
}

// Bounds of an answer.
const (
	pingEvery = 15 * time.Second
	unread    = 30 * time.Second
)

func newAnswer(w http.ResponseWriter, fail func(int, string)) *answer {
	return &answer{to: w, control: http.NewResponseController(w), header: http.Header{}, fail: fail}
}

// Header implements [http.ResponseWriter].
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *answer) WriteHeader(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(status, a.header)
}

func (a *answer) begin(status int, header http.Header) {
	switch {
	case a.begun || a.failed != 0:
		return
	case status >= 400 && strings.HasPrefix(header.Get("Content-Type"), "text/plain"):
		a.failed = status
		return
	}
	a.begun, a.streams = true, header.Get("Content-Type") == stream
	maps.Copy(a.to.Header(), header)
	_ = a.control.SetWriteDeadline(time.Now().Add(unread)) // fails if the connection has no deadlines
	a.to.WriteHeader(status)
}

const stream = "text/event-stream"

// Write implements [http.ResponseWriter].
func (a *answer) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.begin(http.StatusOK, a.header)
	if a.failed != 0 {
		a.fail(a.failed, string(bytes.TrimSpace(p)))
		return len(p), nil
	}
	_ = a.control.SetWriteDeadline(time.Now().Add(unread)) // fails if the connection has no deadlines
	if a.early && bytes.HasPrefix(p, []byte("{")) {        // otherwise the text would have been the whole answer
		_, err := a.to.Write(slices.Concat([]byte("event: message\ndata: "), p, []byte("\n\n")))
		return len(p), err
	}
	return a.to.Write(p)
}

// FlushError implements the flushing that [http.ResponseController] uses.
func (a *answer) FlushError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.begun {
		return nil
	}
	return a.control.Flush()
}

// beat writes comments to a stream until stop is called, so that it is not taken for dead, and ends the request when
// the client has gone.
func (a *answer) beat(ctx context.Context, every time.Duration, end context.CancelCauseFunc) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if a.ping() != nil {
				end(context.Canceled)
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// ping writes a comment to a stream.
func (a *answer) ping() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.streams || a.failed != 0 {
		return nil
	}
	if !a.begun {
		a.early = true
		a.begin(http.StatusOK, http.Header{"Content-Type": {stream}})
	}
	_ = a.control.SetWriteDeadline(time.Now().Add(unread)) // fails if the connection has no deadlines
	if _, err := a.to.Write([]byte(": ping\n\n")); err != nil {
		return err
	}
	return a.control.Flush()
}
