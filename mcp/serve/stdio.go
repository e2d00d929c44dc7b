package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib/mcp/internal/rpc"
)

const (
	// maxLine bounds a message, in bytes. The arguments of a call may have 1 MiB.
	maxLine = 16 << 20
	// maxPending is the number of unanswered requests at which reading stops, because the client does not read the
	// answers.
	maxPending = 4096
)

// stdio is the transport over lines of standard input and output. Unlike that of the SDK, it answers a line that is
// not a message with an error and continues, and at the end of the input it waits for the answers to earlier
// requests.
type stdio struct {
	s    *Server
	in   io.ReadCloser
	out  rpc.Writer
	line chan line
	next []json.RawMessage // messages of the line that was read last

	closing sync.Once
	closed  chan struct{}

	mu      sync.Mutex
	pending map[jsonrpc.ID]bool
	fell    chan struct{} // a request was answered
}

type line struct {
	text []byte
	err  error
}

// Connect implements [sdk.Transport].
func (t *stdio) Connect(context.Context) (sdk.Connection, error) {
	t.line, t.closed, t.fell = make(chan line), make(chan struct{}), make(chan struct{}, 1)
	t.pending = map[jsonrpc.ID]bool{}
	go t.scan()
	return t, nil
}

// SessionID implements [sdk.Connection].
func (t *stdio) SessionID() string { return "" }

// Close implements [sdk.Connection]. A read of standard input may remain blocked, because nothing ends it.
func (t *stdio) Close() error {
	t.closing.Do(func() {
		close(t.closed)
		go t.in.Close()
	})
	return nil
}

var errLong = fmt.Errorf("the message has more than %d bytes", maxLine)

// scan reads lines until there are no more.
func (t *stdio) scan() {
	in := bufio.NewReaderSize(t.in, 64<<10)
	for {
		var l line
		for more := true; more && l.err == nil; {
			var part []byte
			part, l.err = in.ReadSlice('\n')
			if more = errors.Is(l.err, bufio.ErrBufferFull); more {
				l.err = nil
			}
			if len(l.text) <= maxLine { // the rest of a longer line is skipped
				l.text = append(l.text, part...)
			}
		}
		if text := bytes.TrimSpace(l.text); len(text) > 0 && !t.read(line{text: text}) {
			return
		}
		if l.err != nil {
			t.read(line{err: l.err})
			return
		}
	}
}

// read passes a line to Read. It returns false if there are no more reads.
func (t *stdio) read(l line) bool {
	select {
	case t.line <- l:
		return true
	case <-t.closed:
		return false
	}
}

// Read implements [sdk.Connection].
func (t *stdio) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		t.await(maxPending, nil)
		if len(t.next) > 0 {
			text := t.next[0]
			t.next = t.next[1:]
			message, err := rpc.Decode(text)
			if err != nil {
				t.refuse(text, err)
				continue
			}
			if call, ok := message.(*jsonrpc.Request); ok && call.IsCall() {
				t.mu.Lock()
				t.pending[call.ID] = true
				t.mu.Unlock()
			}
			return message, nil
		}
		select {
		case <-t.closed:
			return nil, io.EOF
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case l := <-t.line:
			if l.err != nil {
				t.s.left()
				t.await(1, time.After(ending))
				return nil, l.err
			}
			if len(l.text) > maxLine {
				t.refuse(l.text, errLong)
				continue
			}
			t.next = rpc.Split(l.text)
		}
	}
}

// await waits until fewer than the given number of requests are unanswered, or until the connection or the time
// ends.
func (t *stdio) await(fewer int, limit <-chan time.Time) {
	for {
		t.mu.Lock()
		n := len(t.pending)
		t.mu.Unlock()
		if n < fewer {
			return
		}
		select {
		case <-t.fell:
		case <-t.closed:
			return
		case <-t.s.ctx.Done():
			return
		case <-limit:
			return
		}
	}
}

// refuse answers a text that is not a message, under its ID if it has one.
func (t *stdio) refuse(text []byte, err error) {
	answer := map[string]any{
		"jsonrpc": "2.0", "id": nil,
		"error": map[string]any{"code": jsonrpc.CodeParseError, "message": "no JSON-RPC message in one line: " + err.Error()},
	}
	var it struct {
		ID any `json:"id"`
	}
	if len(text) <= maxLine && json.Unmarshal(text, &it) == nil {
		if _, err := jsonrpc.MakeID(it.ID); err == nil {
			answer["id"] = it.ID
		}
	}
	if out, err := json.Marshal(answer); err == nil {
		_ = t.out.Line(context.Background(), out) // a failure shows in the next answer
	}
}

// Write implements [sdk.Connection].
func (t *stdio) Write(ctx context.Context, message jsonrpc.Message) error {
	err := t.out.Write(ctx, message)
	if answer, ok := message.(*jsonrpc.Response); ok {
		t.mu.Lock()
		delete(t.pending, answer.ID)
		t.mu.Unlock()
		select {
		case t.fell <- struct{}{}:
		default:
		}
	}
	return err
}
