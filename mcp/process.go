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
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolcrib/toolcrib/mcp/internal/rpc"
)

// baseEnv are the variables that every program gets, as with the official SDKs.
var baseEnv = []string{"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"}

// environment is all that a program gets of the environment.
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
		// A value that is a shell's function runs where a shell reads it.
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
	maxLogLines = 10_000 // of one start; the others are dropped
	lastLines   = 3      // what is shown of a program that has ended
	maxNoise    = 1 << 20
	maxPerSec   = 100
	maxBurst    = 2000                   // messages that are no answers: so many at once, and maxPerSec
	readAfter   = 100 * time.Millisecond // for what a program wrote before it ended
)

// startProcess starts a program and returns the way to it.
func (c *Client) startProcess() (*link, error) {
	cmd := exec.Command(c.server.Command, c.server.Args...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = c.server.environment(), c.server.Dir, closePatience
	said := &lines{log: func(line string) { c.options.Log(c.server.Name, line) }}
	cmd.Stderr = said
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// Not cmd's own: Wait would close it before all is read.
	stdout, writer, err := os.Pipe()
	if err != nil {
		_ = stdin.Close()
		return nil, err
	}
	cmd.Stdout = writer
	started, ended := make(chan error, 1), make(chan struct{})
	var guard func()
	go func() {
		// Where the system ends a program with the thread that started it, that is kept.
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
		// What it has started may still hold its output, which must not look as if it ran.
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
		Writer: rpc.Writer{To: stdin}, from: bufio.NewReaderSize(stdout, 64<<10), noise: said, close: func() error {
			return errors.Join(stdout.Close(), stdin.Close()) // ends reading without waiting for the program
		},
	}
	return l, nil
}

// lines passes on what a program writes for people, line by line, and keeps the last.
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

// line notes one line; l.mu is held.
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

// last says how a program ended.
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

// messages are those of a program: a line of JSON each. Other lines, which many programs write
// by mistake, structured log lines among them, go to the log, up to a bound.
type messages struct {
	rpc.Writer
	from  *bufio.Reader
	noise *lines
	wrong int
	next  []jsonrpc.Message
	asks  rate // messages that are no answers
	close func() error
}

// Connect implements [sdk.Transport].
func (m *messages) Connect(context.Context) (sdk.Connection, error) { return m, nil }

// SessionID implements [sdk.Connection].
func (m *messages) SessionID() string { return "" }

// Close implements [sdk.Connection].
func (m *messages) Close() error { return m.close() }

// rate bounds messages: maxBurst at once, and maxPerSec.
type rate struct {
	mu     sync.Mutex
	before time.Time // the last message
	count  float64
}

// add counts n messages; with an error if they are too many.
func (r *rate) add(n int) error {
	if n == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.count = max(0, r.count-maxPerSec*now.Sub(r.before).Seconds()) + float64(n)
	if r.before = now; r.count > maxBurst {
		return fmt.Errorf("it floods: it sends more than %d messages in a second that are no answers", maxPerSec)
	}
	return nil
}

// Read implements [sdk.Connection].
func (m *messages) Read(context.Context) (jsonrpc.Message, error) {
	for len(m.next) == 0 {
		err := m.line()
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
	return next, nil
}

// line reads the messages of the next line, which may be none, with an error if the output has ended.
func (m *messages) line() error {
	var line []byte
	for {
		part, err := m.from.ReadSlice('\n')
		if len(line)+len(part) > maxMessage {
			return errTooLong
		}
		if line = append(line, part...); err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return err // what has no end is no message
		}
	}
	text := bytes.TrimSpace(line)
	if len(text) == 0 {
		return nil
	}
	var err error
	if m.next, err = decode(text); errors.Is(err, rpc.ErrNoMessage) {
		m.noise.Write(append(text, '\n')) //nolint:errcheck // it never fails
		if m.wrong += len(text); m.wrong > maxNoise {
			return errors.New("it writes something else than messages")
		}
		return nil
	}
	asks := 0
	for _, message := range m.next {
		switch message := message.(type) {
		case *jsonrpc.Request:
			asks++
		case *jsonrpc.Response:
			message.Result = readable(message.Result)
		}
	}
	return cmp.Or(err, m.asks.add(asks))
}

// blockTypes are the types of content that the SDK reads; with another one it refuses the whole answer.
var blockTypes = []string{"text", "image", "audio", "resource_link", "resource", "tool_use", "tool_result"}

// readable has a text instead of each block of content whose type is not known.
func readable(result json.RawMessage) json.RawMessage {
	var whole map[string]json.RawMessage
	var blocks []json.RawMessage
	if !bytes.Contains(result, []byte(`"content"`)) || json.Unmarshal(result, &whole) != nil ||
		json.Unmarshal(whole["content"], &blocks) != nil {
		return result
	}
	left := false
	for i, block := range blocks {
		var of struct{ Type string }
		if json.Unmarshal(block, &of) == nil && of.Type != "" && !slices.Contains(blockTypes, of.Type) {
			text, err := json.Marshal(fmt.Sprintf("[content of type %.40q was left out: it is not supported]", of.Type))
			if err != nil {
				return result
			}
			left, blocks[i] = true, fmt.Appendf(nil, `{"type":"text","text":%s}`, text)
		}
	}
	if !left {
		return result
	}
	var err error
	if whole["content"], err = json.Marshal(blocks); err == nil {
		if again, err := json.Marshal(whole); err == nil {
			return again
		}
	}
	return result
}

// decode reads the messages of a line: one, or a batch, as older servers may send it.
func decode(text []byte) ([]jsonrpc.Message, error) {
	if text[0] != '[' {
		one, err := rpc.Decode(text)
		if err != nil {
			return nil, err
		}
		return []jsonrpc.Message{one}, nil
	}
	var batch []json.RawMessage
	if json.Unmarshal(text, &batch) != nil {
		return nil, rpc.ErrNoMessage
	}
	var list []jsonrpc.Message
	for _, one := range batch {
		message, err := rpc.Decode(one)
		if errors.Is(err, rpc.ErrNoMessage) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, message)
	}
	if len(list) == 0 {
		return nil, rpc.ErrNoMessage
	}
	return list, nil
}
