package acp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	sdk "github.com/coder/acp-go-sdk"
)

// maxLine bounds a message, in bytes. A longer one would end the connection of the SDK.
const maxLine = 10<<20 - 1

// lines passes on to the SDK the messages that it can take. A line that is not a message is answered with an error,
// instead of being logged; a request beyond [MaxRequests] is refused; and session/cancel takes effect here, in the
// order of the messages, which the SDK does not keep.
type lines struct {
	s     *Server
	in    *bufio.Reader
	rest  []byte
	ready chan struct{} // closed when the connection is set up
}

func newReader(in io.Reader) *bufio.Reader { return bufio.NewReaderSize(in, 64<<10) }

// Read implements [io.Reader].
func (l *lines) Read(p []byte) (int, error) {
	<-l.ready
	for len(l.rest) == 0 {
		line, err := l.next()
		if line = bytes.TrimSpace(line); len(line) > 0 && l.passes(line) {
			l.rest = append(line, '\n')
			break
		}
		if err != nil {
			return 0, err
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// next reads a line. The rest of one that is too long is skipped.
func (l *lines) next() (line []byte, err error) {
	for {
		part, err := l.in.ReadSlice('\n')
		if len(line) <= maxLine {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// passes reports whether a line is for the SDK. A request that is not is answered.
func (l *lines) passes(line []byte) bool {
	var it struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Session sdk.SessionId `json:"sessionId"`
		} `json:"params"`
	}
	if len(line) > maxLine {
		l.refuse(nil, sdk.NewParseError(map[string]any{"error": fmt.Sprintf("more than %d bytes", maxLine)}))
		return false
	}
	var invalid *json.UnmarshalTypeError // params may be anything
	if err := json.Unmarshal(line, &it); err != nil && (!errors.As(err, &invalid) || line[0] != '{') {
		l.refuse(nil, sdk.NewParseError(map[string]any{"error": "no JSON-RPC message in one line"}))
		return false
	}
	asks := len(it.ID) > 0 && string(it.ID) != "null"
	switch {
	case it.Method == "" && !asks:
		l.refuse(nil, sdk.NewInvalidRequest(nil))
	case it.Method == "": // an answer
		return true
	case asks && l.s.inFlight.Add(1) > MaxRequests:
		l.s.inFlight.Add(-1)
		l.refuse(it.ID, &sdk.RequestError{Code: -32000, Message: fmt.Sprintf("more than %d requests at a time", MaxRequests)})
	case asks:
		if one := l.s.session(it.Params.Session); one != nil && it.Method == sdk.AgentMethodSessionPrompt {
			one.claim()
		}
		return true
	case it.Method == sdk.AgentMethodSessionCancel:
		if one := l.s.session(it.Params.Session); one != nil {
			one.stop()
		}
	default: // of other notifications only this one has a meaning
		return it.Method == "$/cancel_request"
	}
	return false
}

func (l *lines) refuse(id json.RawMessage, e *sdk.RequestError) {
	if id == nil {
		id = json.RawMessage("null")
	}
	if text, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": e}); err == nil {
		_, _ = l.s.out.Write(append(text, '\n')) // a failure shows in the next answer
	}
}

// output writes messages, each in one write.
type output struct {
	mu    sync.Mutex
	w     io.Writer
	next  map[string]func()
	after sync.WaitGroup
}

// afterAnswer calls do once an answer with this text was written.
func (o *output) afterAnswer(text string, do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.next == nil {
		o.next = map[string]func(){}
	}
	o.next[text] = do
}

// Write implements [io.Writer].
func (o *output) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.w.Write(line)
	if len(o.next) > 0 && bytes.Contains(line, []byte(`"result":`)) {
		for text, do := range o.next {
			if bytes.Contains(line, []byte(text)) {
				delete(o.next, text)
				o.after.Go(do)
			}
		}
	}
	return n, err
}
