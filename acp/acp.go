// Package acp is toolcrib in editors: a front end that speaks the Agent Client Protocol. An editor opens sessions and
// sends prompts; it is shown what a run does, and asked what the run waits for. All decisions are made by the service.
//
// Of what an editor offers, only fs/read_text_file is used, for files with unsaved changes. Files are written and
// programs run by toolcrib's own tools, behind its gate.
package acp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service"
)

const (
	// MaxRequests is the number of requests of an editor that may be in flight. Further ones are refused.
	MaxRequests = 64
	// MaxSessions is the number of sessions that may be open.
	MaxSessions = 256
	// ending is how long turns may take to end after the editor has gone.
	ending = 5 * time.Second
)

// Host opens conversations.
type Host interface {
	// Open begins a session, or continues one. The conversation shows its turns in to.
	Open(ctx context.Context, q OpenRequest, to *Session) (Conversation, error)
	// List returns a page of the person's sessions, newest first; if folder is not "", only those in it.
	List(ctx context.Context, folder, cursor string) (list []Listed, next string, err error)
}

// OpenRequest asks for a conversation.
type OpenRequest struct {
	Folder  string // absolute path of the workspace
	Session string // ID of the session to continue, or "" for a new one
	Servers []MCPServer
}

// MCPServer is an MCP server that the editor has configured: a program or an address.
type MCPServer struct {
	Name, Command string
	Args          []string
	URL           string
}

// Listed is a session in a list.
type Listed struct {
	ID, Folder, Title string
	Updated           time.Time
}

// Conversation is one session. Its methods are not called concurrently, except Choices and Choose.
type Conversation interface {
	// ID returns the ID of the session, by which it can be opened again.
	ID() string
	// Turn answers a message or carries out a command. It returns the last run that it made, or nil. If the cause of
	// ctx is Stopped, its run is cancelled; otherwise it is left to be resumed.
	Turn(ctx context.Context, m Message) (*service.Run, error)
	// Story shows what was said so far.
	Story(ctx context.Context) error
	// Commands returns the commands, by their names without a slash.
	Commands() []Command
	// Choices returns the settings of the next turns, and Choose changes one.
	Choices() []Choice
	Choose(ctx context.Context, id, value string) error
	// Stopped is the cause of the context of a turn that the person stops.
	Stopped() error
	// Close is called once, last, when the session was closed and no turn is in progress.
	Close()
}

// Message is a message of the person.
type Message struct {
	Text  string
	Files []toolcrib.OutputFile
}

// Command is a command of a conversation.
type Command struct{ Name, Args, Does string }

// Choice is a setting with its options. The IDs of the choices with a meaning in the protocol are [Mode] and [Model].
type Choice struct {
	ID, Name, Current string
	Options           []Option
}

// Option is a value of a [Choice].
type Option struct{ Value, Does string }

// IDs of choices.
const (
	Mode  = "mode"
	Model = "model"
)

// Options are the options of a [Server].
type Options struct {
	Host    Host
	Version string
	Mask    func(text string) string
}

// Server serves one editor.
type Server struct {
	Options
	conn  *sdk.Connection
	out   *output
	ctx   context.Context // context of turns; when it ends, their runs are left to be resumed
	turns sync.WaitGroup

	inFlight atomic.Int64
	reads    atomic.Bool // the editor answers fs/read_text_file
	greeted  atomic.Bool

	mu       sync.Mutex
	sessions map[sdk.SessionId]*Session
}

var errGone = errors.New("the editor has gone")

// New returns a server.
func New(o Options) *Server {
	return &Server{Options: o, sessions: map[sdk.SessionId]*Session{}}
}

// Run serves the editor on in and out until in or ctx ends. The runs of turns in progress are then left to be resumed.
func (s *Server) Run(ctx context.Context, in io.ReadCloser, out io.Writer) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	s.ctx, s.out = ctx, &output{w: out}
	l := &lines{s: s, in: newReader(in), ready: make(chan struct{})}
	s.conn = sdk.NewConnection(s.handle, s.out, l)
	s.conn.SetLogger(slog.New(slog.DiscardHandler)) // it would log what the editor sends
	close(l.ready)
	select {
	case <-s.conn.Done():
		end(errGone)
	case <-ctx.Done():
		go in.Close() //nolint:errcheck // ends the reader, if anything does
	}
	ended := make(chan struct{})
	go func() {
		s.turns.Wait()
		s.out.after.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(ending): // a turn may wait for an editor that does not read
	}
	if cause := context.Cause(ctx); !errors.Is(cause, errGone) {
		return cause
	}
	return nil
}

// handle answers a request.
func (s *Server) handle(ctx context.Context, method string, raw json.RawMessage) (any, *sdk.RequestError) {
	defer s.inFlight.Add(-1)
	s.turns.Add(1)
	defer s.turns.Done()
	if method != sdk.AgentMethodInitialize && !s.greeted.Load() {
		return nil, sdk.NewInvalidRequest(map[string]any{"error": "the first request is initialize"})
	}
	switch method {
	case sdk.AgentMethodInitialize:
		return answer(s, raw, func(q *sdk.InitializeRequest) (any, error) { return s.initialize(q), nil })
	case sdk.AgentMethodSessionNew:
		return answer(s, raw, func(q *sdk.NewSessionRequest) (any, error) { return s.begin(ctx, q) })
	case sdk.AgentMethodSessionLoad:
		return answer(s, raw, func(q *sdk.LoadSessionRequest) (any, error) { return s.load(ctx, q) })
	case sdk.AgentMethodSessionList:
		return answer(s, raw, func(q *sdk.ListSessionsRequest) (any, error) { return s.list(ctx, q) })
	case sdk.AgentMethodSessionClose:
		return answer(s, raw, func(q *sdk.CloseSessionRequest) (any, error) {
			return sdk.CloseSessionResponse{}, s.leave(q.SessionId)
		})
	case sdk.AgentMethodSessionPrompt:
		return answer(s, raw, func(q *sdk.PromptRequest) (any, error) {
			return withSession(s, q.SessionId, func(one *Session) (any, error) { return one.prompt(ctx, q.Prompt) })
		})
	case sdk.AgentMethodSessionSetMode:
		return answer(s, raw, func(q *sdk.SetSessionModeRequest) (any, error) {
			return withSession(s, q.SessionId, func(one *Session) (any, error) {
				return sdk.SetSessionModeResponse{}, one.choose(ctx, Mode, string(q.ModeId))
			})
		})
	case sdk.AgentMethodSessionSetModel:
		return answer(s, raw, func(q *sdk.UnstableSetSessionModelRequest) (any, error) {
			return withSession(s, q.SessionId, func(one *Session) (any, error) {
				return sdk.UnstableSetSessionModelResponse{}, one.choose(ctx, Model, string(q.ModelId))
			})
		})
	case sdk.AgentMethodSessionSetConfigOption:
		return answer(s, raw, func(q *sdk.SetSessionConfigOptionRequest) (any, error) {
			if q.ValueId == nil {
				return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "there is no option with true and false")
			}
			return withSession(s, q.ValueId.SessionId, func(one *Session) (any, error) {
				err := one.choose(ctx, string(q.ValueId.ConfigId), string(q.ValueId.Value))
				return sdk.SetSessionConfigOptionResponse{ConfigOptions: configOptions(one.talk.Choices())}, err
			})
		})
	}
	return nil, sdk.NewMethodNotFound(method)
}

// answer decodes the parameters of a request and answers it.
func answer[T any, P interface {
	*T
	Validate() error
}](s *Server, raw json.RawMessage, do func(q P) (any, error)) (any, *sdk.RequestError) {
	q := P(new(T))
	err := json.Unmarshal(raw, q)
	if err == nil {
		err = q.Validate()
	}
	if err != nil {
		return nil, sdk.NewInvalidParams(map[string]any{"error": err.Error()})
	}
	out, err := do(q)
	if err != nil {
		return nil, s.failure(err)
	}
	return out, nil
}

// failure returns an error of the service as one of the protocol. Editors show its message.
func (s *Server) failure(err error) *sdk.RequestError {
	e := sdk.NewInternalError(nil)
	switch toolcrib.CodeOf(err) {
	case toolcrib.CodeBadRequest:
		e = sdk.NewInvalidParams(nil)
	case toolcrib.CodeNotFound:
		e.Code = -32002 // resource not found
	}
	e.Message = guard.Visible(s.Mask(err.Error()))
	return e
}

func (s *Server) initialize(q *sdk.InitializeRequest) sdk.InitializeResponse {
	s.reads.Store(q.ClientCapabilities.Fs.ReadTextFile)
	s.greeted.Store(true)
	return sdk.InitializeResponse{
		ProtocolVersion: sdk.ProtocolVersionNumber, AuthMethods: []sdk.AuthMethod{},
		AgentInfo: &sdk.Implementation{Name: "toolcrib", Title: sdk.Ptr("toolcrib"), Version: s.Version},
		AgentCapabilities: sdk.AgentCapabilities{
			LoadSession:        true,
			PromptCapabilities: sdk.PromptCapabilities{Image: true, EmbeddedContext: true},
			SessionCapabilities: sdk.SessionCapabilities{
				List: &sdk.SessionListCapabilities{}, Close: &sdk.SessionCloseCapabilities{},
			},
		},
	}
}

// session returns an open session, or nil.
func (s *Server) session(id sdk.SessionId) *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}

func withSession(s *Server, id sdk.SessionId, do func(*Session) (any, error)) (any, error) {
	one := s.session(id)
	if one == nil {
		return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no open session %s", guard.Cut(string(id), 64))
	}
	return do(one)
}

// open opens a session.
func (s *Server) open(ctx context.Context, folder, id string, servers []sdk.McpServer) (*Session, error) {
	if !filepath.IsAbs(folder) {
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "cwd: must be an absolute path")
	}
	s.mu.Lock()
	n := len(s.sessions)
	s.mu.Unlock()
	if n >= MaxSessions {
		return nil, toolcrib.Errorf(toolcrib.CodeConflict, "more than %d sessions are open; close some", MaxSessions)
	}
	one := &Session{s: s, folder: filepath.Clean(folder)}
	talk, err := s.Host.Open(ctx, OpenRequest{Folder: one.folder, Session: id, Servers: serversOf(servers)}, one)
	if err != nil {
		return nil, err
	}
	one.id, one.talk = sdk.SessionId(cmp.Or(id, talk.ID())), talk // the editor's name for it
	s.mu.Lock()
	old := s.sessions[one.id]
	busy := old != nil && old.busy()
	if !busy {
		s.sessions[one.id] = one
	}
	s.mu.Unlock()
	if busy {
		talk.Close()
		return nil, toolcrib.Errorf(toolcrib.CodeConflict, "a turn of session %s is running", one.id)
	}
	if old != nil {
		old.close()
	}
	return one, nil
}

func (s *Server) begin(ctx context.Context, q *sdk.NewSessionRequest) (any, error) {
	one, err := s.open(ctx, q.Cwd, "", q.McpServers)
	if err != nil {
		return nil, err
	}
	s.out.afterAnswer(string(one.id), one.sendCommands) // an editor knows the session from the answer on
	choices := one.talk.Choices()
	return sdk.NewSessionResponse{
		SessionId: one.id, Modes: modes(choices), Models: models(choices), ConfigOptions: configOptions(choices),
	}, nil
}

func (s *Server) load(ctx context.Context, q *sdk.LoadSessionRequest) (any, error) {
	if q.SessionId == "" {
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "sessionId: must not be empty")
	}
	one, err := s.open(ctx, q.Cwd, string(q.SessionId), q.McpServers)
	if err != nil {
		return nil, err
	}
	one.replaying = true
	err = one.talk.Story(ctx)
	one.replaying = false
	if err != nil {
		return nil, errors.Join(err, s.leave(one.id))
	}
	one.sendCommands()
	choices := one.talk.Choices()
	return sdk.LoadSessionResponse{
		Modes: modes(choices), Models: models(choices), ConfigOptions: configOptions(choices),
	}, nil
}

func (s *Server) list(ctx context.Context, q *sdk.ListSessionsRequest) (any, error) {
	folder, cursor := "", ""
	if q.Cwd != nil {
		folder = filepath.Clean(*q.Cwd)
	}
	if q.Cursor != nil {
		cursor = *q.Cursor
	}
	all, next, err := s.Host.List(ctx, folder, cursor)
	if err != nil {
		return nil, err
	}
	out := sdk.ListSessionsResponse{Sessions: []sdk.SessionInfo{}}
	for _, l := range all {
		out.Sessions = append(out.Sessions, sdk.SessionInfo{
			SessionId: sdk.SessionId(l.ID), Cwd: l.Folder, Title: sdk.Ptr(guard.Visible(l.Title)),
			UpdatedAt: sdk.Ptr(l.Updated.UTC().Format(time.RFC3339)),
		})
	}
	if next != "" {
		out.NextCursor = &next
	}
	return out, nil
}

// leave closes a session. Its turn ends as if the person stopped it.
func (s *Server) leave(id sdk.SessionId) error {
	_, err := withSession(s, id, func(one *Session) (any, error) {
		s.mu.Lock()
		delete(s.sessions, id)
		s.mu.Unlock()
		one.close()
		return nil, nil
	})
	return err
}

func serversOf(all []sdk.McpServer) (list []MCPServer) {
	for _, m := range all {
		switch {
		case m.Stdio != nil:
			list = append(list, MCPServer{Name: m.Stdio.Name, Command: m.Stdio.Command, Args: m.Stdio.Args})
		case m.Http != nil:
			list = append(list, MCPServer{Name: m.Http.Name, URL: m.Http.Url})
		case m.Sse != nil:
			list = append(list, MCPServer{Name: m.Sse.Name, URL: m.Sse.Url})
		case m.Acp != nil:
			list = append(list, MCPServer{Name: m.Acp.Name, URL: fmt.Sprintf("acp:%s", m.Acp.Id)})
		}
	}
	return list
}
