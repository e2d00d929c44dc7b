package mcp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"

	"github.com/toolcrib/toolcrib/mcp/internal/rpc"
)

// baseEnv lists the variables that every program gets, as with the official SDKs.
var baseEnv = []string{"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"}

// environment returns the whole environment of a program.
func (s *Server) environment() []string {
	env := map[string]string{}
	names := baseEnv
	if runtime.GOOS == "windows" {
		names = []string{
			"APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE",
			"SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE",
		}
	}
	for _, name := range names {
		// A value that is a shell function would run where a shell reads it.
		if value, ok := os.LookupEnv(name); ok && !strings.HasPrefix(value, "()") {
			env[name] = value
		}
	}
	maps.Copy(env, s.Env)
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

const (
	maxLogLine  = 4 << 10
	maxLogLines = 10_000 // lines of one start; further ones are dropped
	lastLines   = 3      // lines shown of a program that has ended
	maxNoise    = 1 << 20
	maxPerSec   = 100
	maxBurst    = 2000                   // burst of messages that are not answers; then maxPerSec
	readAfter   = 100 * time.Millisecond // for reading the output that a program wrote before it ended
)

// startProcess starts a program and returns the connection to it.
func (c *Client) startProcess() (*link, error) {
	cmd := exec.Command(c.server.Command, c.server.Args...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = c.server.environment(), c.server.Dir, closePatience
	said := &lines{log: func(line string) { c.options.Log(c.server.Name, line) }}
	cmd.Stderr = said
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// cmd.StdoutPipe is not used, because Wait would close it before everything is read.
	stdout, writer, err := os.Pipe()
	if err != nil {
		_ = stdin.Close()
		return nil, err
	}
	cmd.Stdout = writer
	started, ended := make(chan error, 1), make(chan struct{})
	var guard func()
	go func() {
		// Some systems end a program with the thread that started it, so this thread is kept.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		alone(cmd)
		err := cmd.Start()
		_ = writer.Close()
		if err == nil {
			guard = watch(cmd.Process.Pid)
		}
		started <- err
		if err == nil {
			said.exit = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		_, _ = stdin.Close(), stdout.Close()
		var missing *exec.Error
		if errors.As(err, &missing) {
			err = missing.Err
		}
		return nil, fmt.Errorf("the program %s cannot be started: %w", c.server.Command, err)
	}
	pid := cmd.Process.Pid
	go func() {
		// Its child processes may still hold its output, which must not look as if it ran.
		<-ended
		time.Sleep(readAfter)
		endAll(cmd.Process, pid)
		_ = stdout.Close()
	}()
	l := &link{explain: func() string {
		<-ended
		return said.last()
	}}
	l.close = func() {
		_ = stdin.Close() // asks it to end
		select {
		case <-ended:
		case <-time.After(closePatience):
		}
		endAll(cmd.Process, pid)
		<-ended
		_ = stdout.Close()
		guard()
	}
	l.transport = &messages{
		Writer: rpc.Writer{To: stdin}, from: bufio.NewReaderSize(stdout, 64<<10), noise: said, asks: newLimiter(),
		patience: min(discoverPatience, cmp.Or(c.server.Start, startTimeout)/2), silent: make(chan struct{}, 1),
		close: func() error {
			return errors.Join(stdout.Close(), stdin.Close()) // ends reading without waiting for the program
		},
	}
	return l, nil
}

// lines passes on the text that a program writes for people, line by line, and keeps the last lines.
type lines struct {
	log  func(string)
	exit error // what Wait returned; read once the program has ended

	mu   sync.Mutex
	bad  error // why its output is no longer read
	rest []byte
	n    int
	kept []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := p; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		l.rest = append(l.rest, line[:min(len(line), maxLogLine-len(l.rest))]...)
		rest = after
		if whole {
			l.line(string(l.rest))
			l.rest = l.rest[:0]
		}
	}
	return len(p), nil
}

// line records one line; l.mu is held.
func (l *lines) line(text string) {
	if text = strings.TrimRight(text, "\r "); text == "" {
		return
	}
	if l.n++; l.n <= maxLogLines {
		l.log(text)
	}
	if l.kept = append(l.kept, text); len(l.kept) > lastLines {
		l.kept = l.kept[1:]
	}
}

// last describes how a program ended.
func (l *lines) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 {
		l.line(string(l.rest))
		l.rest = nil
	}
	if l.bad != nil {
		return l.bad.Error()
	}
	text := strings.Join(l.kept, " / ")
	var exit *exec.ExitError
	if errors.As(l.exit, &exit) {
		text = strings.TrimSuffix(exit.String()+": "+text, ": ")
	}
	return text
}

// messages are the messages of a program, one JSON text per line. Other lines, such as structured log lines that
// many programs write by mistake, go to the log, up to a bound.
type messages struct {
	rpc.Writer
	from  *bufio.Reader
	noise *lines
	wrong int
	next  []jsonrpc.Message
	asks  *rate.Limiter // messages that are not answers
	close func() error

	// A server from before server/discover may not answer it, or answer without its ID. After patience the request
	// counts as not answered, and the SDK begins with initialize.
	patience time.Duration
	discover atomic.Pointer[jsonrpc.ID]
	silent   chan struct{} // gets a value after patience
	settled  atomic.Bool   // server/discover was answered, or initialize was sent
	reading  chan error    // gets the error of the line that is being read; nil if no line is
}

// Write implements [sdk.Connection].
func (m *messages) Write(ctx context.Context, message jsonrpc.Message) error {
	if q, ok := message.(*jsonrpc.Request); ok && q.Method == "server/discover" && !m.settled.Load() {
		m.discover.Store(&q.ID)
		time.AfterFunc(m.patience, func() { m.silent <- struct{}{} })
	} else if ok && q.Method == "initialize" {
		m.settled.Store(true)
	}
	return m.Writer.Write(ctx, message)
}

// Connect implements [sdk.Transport].
func (m *messages) Connect(context.Context) (sdk.Connection, error) { return m, nil }

// SessionID implements [sdk.Connection].
func (m *messages) SessionID() string { return "" }

// Close implements [sdk.Connection].
func (m *messages) Close() error { return m.close() }

// newLimiter returns a limiter of messages that are not answers: maxBurst at once, then maxPerSec.
func newLimiter() *rate.Limiter { return rate.NewLimiter(maxPerSec, maxBurst) }

// flood counts n messages, and returns an error if they are too many.
func flood(l *rate.Limiter, n int) error {
	if l.AllowN(time.Now(), n) {
		return nil
	}
	return fmt.Errorf("it sends too much: more than %d messages in a second that are not responses", maxPerSec)
}

// Read implements [sdk.Connection].
func (m *messages) Read(context.Context) (jsonrpc.Message, error) {
	for m.reading != nil || len(m.next) == 0 {
		err := m.wait()
		if errors.Is(err, rpc.ErrNobody) {
			if id := m.discover.Load(); id != nil && !m.settled.Swap(true) {
				return &jsonrpc.Response{ID: *id, Error: &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}}, nil
			}
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
			m.noise.mu.Lock()
			m.noise.bad = err
			m.noise.mu.Unlock()
		}
		return nil, err
	}
	next := m.next[0]
	m.next = m.next[1:]
	if _, ok := next.(*jsonrpc.Response); ok {
		m.settled.Store(true)
	}
	return next, nil
}

// wait waits for the next line. It returns [rpc.ErrNobody] if server/discover was not answered for too long.
func (m *messages) wait() (err error) {
	if m.reading == nil && m.settled.Load() {
		return m.line()
	}
	if m.reading == nil {
		m.reading = make(chan error, 1)
		go func(done chan<- error) { done <- m.line() }(m.reading)
	}
	select {
	case err = <-m.reading:
		m.reading = nil
	case <-m.silent:
		if !m.settled.Load() {
			err = rpc.ErrNobody
		}
	}
	return err
}

// line reads the messages of the next line, if it has any. It returns an error if the output has ended.
func (m *messages) line() error {
	var read message
	if err := read.readLine(m.from); err != nil {
		return err // a line without an end is not a message
	}
	text, err := read.text()
	if err != nil || len(text) == 0 {
		return err
	}
	if m.next, err = decode(text); errors.Is(err, rpc.ErrNoMessage) {
		m.noise.Write(append(text, '\n')) //nolint:errcheck // it never fails
		if m.wrong += len(text); m.wrong > maxNoise {
			return errors.New("it writes output that is not JSON-RPC")
		}
		return nil
	}
	asks := 0
	for _, message := range m.next {
		if _, ok := message.(*jsonrpc.Request); ok {
			asks++
		}
	}
	return cmp.Or(err, flood(m.asks, asks))
}

// blockTypes lists the types of content that the SDK reads. It refuses the whole answer if another type is in it.
var blockTypes = []string{"text", "image", "audio", "resource_link", "resource", "tool_use", "tool_result"}

// readable returns the text of a message in which each block of content of an unknown type is replaced by a text.
func readable(text []byte) []byte {
	type block struct{ Type string }
	var of struct{ Result struct{ Content []block } }
	unknown := func(b block) bool { return b.Type != "" && !slices.Contains(blockTypes, b.Type) }
	if !bytes.Contains(text, []byte(`"content"`)) || json.Unmarshal(text, &of) != nil ||
		!slices.ContainsFunc(of.Result.Content, unknown) {
		return text
	}
	var message, result map[string]json.RawMessage
	var blocks []json.RawMessage
	if json.Unmarshal(text, &message) != nil || json.Unmarshal(message["result"], &result) != nil ||
		json.Unmarshal(result["content"], &blocks) != nil || len(blocks) != len(of.Result.Content) { // a member twice
		return text
	}
	for i, b := range of.Result.Content {
		if unknown(b) {
			blocks[i], _ = json.Marshal(map[string]string{ // a map of texts can be encoded
				"type": "text", "text": fmt.Sprintf("[content of type %.40q was left out: it is not supported]", b.Type),
			})
		}
	}
	result["content"], _ = json.Marshal(blocks) // this and the rest were decoded from JSON
	message["result"], _ = json.Marshal(result)
	again, _ := json.Marshal(message)
	return again
}

// decode reads the messages of a line: one, or a batch, as older servers may send.
func decode(text []byte) (list []jsonrpc.Message, err error) {
	for _, one := range rpc.Split(text) {
		message, err := rpc.Decode(readable(one))
		switch {
		case err == nil:
			list = append(list, message)
		case !errors.Is(err, rpc.ErrNoMessage):
			return nil, err
		}
	}
	if len(list) == 0 {
		return nil, rpc.ErrNoMessage
	}
	return list, nil
}
