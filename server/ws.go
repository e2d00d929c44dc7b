package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/worker"
)

// The bounds of a WebSocket, in addition to those of a request.
const (
	maxJoined = 64 // concurrent runs
	maxBusy   = 16 // concurrent messages
	slowWrite = 5 * time.Second
	pingEvery = 15 * time.Second
)

// Messages of clients, one for each type. The answer repeats the id.
type (
	wsHead struct {
		Type string `json:"type"`
		ID   string `json:"id,omitempty"`
	}
	wsRun struct {
		wsHead
		Body api.RunRequest `json:"body"`
	}
	wsJoin struct {
		wsHead
		RunID toolcrib.RunID `json:"run_id"`
		After toolcrib.Seq   `json:"after,omitempty"`
	}
	wsToolResult struct {
		wsHead
		RunID toolcrib.RunID `json:"run_id"`
		api.ToolResult
	}
	wsApproval struct {
		wsHead
		ApprovalID string `json:"approval_id"`
		api.DecisionRequest
	}
	wsMessage struct {
		wsHead
		RunID toolcrib.RunID `json:"run_id"`
		api.Said
	}
)

// socketTypes returns the messages that a client may send, by type.
func socketTypes() (map[string]*route, error) {
	all := map[string]route{
		"run": send("", "", "", (*call).wsRun), "join": send("", "", "", (*call).wsJoin),
		"cancel":      send("", "", "", (*call).wsCancel),
		"tool_result": send("", "", "", (*call).wsToolResult), "approval": send("", "", "", (*call).wsApproval),
		"message": send("", "", "", (*call).wsMessage),
	}
	types := make(map[string]*route, len(all))
	for name, r := range all {
		if err := r.compile(); err != nil {
			return nil, err
		}
		types[name] = &r
	}
	return types, nil
}

// socketFrame is sent to a client: an event of a run, or the answer to a message.
type socketFrame struct {
	Run   toolcrib.RunID `json:"run_id,omitempty"`
	Seq   toolcrib.Seq   `json:"seq,omitempty"`
	Event string         `json:"event"`
	ID    string         `json:"id,omitempty"`
	Data  any            `json:"data"`
}

// socket is a WebSocket on which a client starts and follows its runs.
type socket struct {
	call *call
	conn *websocket.Conn
	ctx  context.Context // ends with the connection
	busy chan struct{}
	all  sync.WaitGroup
	once sync.Once
	slow time.Duration

	mu     sync.Mutex
	joined map[toolcrib.RunID]bool
}

// sockets has the open WebSockets.
type sockets struct {
	slow   time.Duration // a client that takes longer to read a frame is disconnected
	mu     sync.Mutex
	open   map[*socket]bool
	ending bool
}

func (s *sockets) put(one *socket, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[one] = true; !open {
		delete(s.open, one)
	} else if s.ending {
		one.leave()
	}
}

// close closes all, because the server is ending.
func (s *sockets) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	for one := range s.open {
		one.leave()
	}
}

func (s *socket) leave() {
	s.close(websocket.StatusGoingAway, "the server is ending; runs continue when it is back")
}

// socket serves a WebSocket until one side closes it. Its runs continue.
func (c *call) socket() (any, error) {
	if !strings.EqualFold(c.r.Header.Get("Upgrade"), "websocket") || c.r.Header.Get("Sec-WebSocket-Key") == "" ||
		c.r.Header.Get("Sec-WebSocket-Version") != "13" {
		return nil, bad("this is a WebSocket; ask for it as RFC 6455 says, with version 13")
	}
	c.wrote = true
	// [Server.admit] has checked the origin.
	conn, err := websocket.Accept(c.w, c.r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return nil, nil // Accept has written the error
	}
	conn.SetReadLimit(c.Service.Env.Config.Server.MaxBodyBytes)
	ctx, end := context.WithCancel(c.staying())
	s := &socket{
		call: c, conn: conn, ctx: ctx, busy: make(chan struct{}, maxBusy), joined: map[toolcrib.RunID]bool{},
		slow: c.sockets.slow,
	}
	c.sockets.put(s, true)
	defer func() { // even if the handler of a message panics
		end()
		c.sockets.put(s, false)
		_ = conn.CloseNow() // may be closed already
		s.all.Wait()
	}()
	closed := make(chan struct{})
	stop := context.AfterFunc(c, func() {
		defer close(closed)
		s.refused(c.revoked())
	})
	defer func() {
		if !stop() {
			<-closed
		}
	}()
	s.goes(s.watch)
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			return nil, nil
		}
		s.take(data)
	}
}

// goes starts work in a goroutine of the connection. A panic closes only this connection.
func (s *socket) goes(work func()) {
	s.all.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				s.call.Log.Error("a WebSocket failed", "panic", p)
				_ = s.conn.CloseNow()
			}
		}()
		work()
	})
}

// close closes the connection with the reason of the first call.
func (s *socket) close(code websocket.StatusCode, why string) {
	s.once.Do(func() { s.all.Go(func() { _ = s.conn.Close(code, why) }) })
}

// refused closes the connection if err means that the token is no longer valid.
func (s *socket) refused(err error) {
	if lostRights(err) {
		s.close(websocket.StatusPolicyViolation, string(toolcrib.CodeOf(err)))
	}
}

// watch pings the client.
func (s *socket) watch() {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(s.ctx, writeTimeout)
		err := s.conn.Ping(ctx)
		cancel()
		if err != nil {
			_ = s.conn.CloseNow() // the client is unreachable
			return
		}
	}
}

// write sends a frame. If the client does not read it in time, write fails. If the client is slow, the connection
// is closed and the reason asks it to join again.
func (s *socket) write(f socketFrame) error {
	text, err := guard.EncodeJSON(f, false)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), writeTimeout)
	defer cancel()
	began := time.Now()
	if err = s.conn.Write(ctx, websocket.MessageText, text); err != nil {
		return errors.Join(errGone, err)
	}
	if time.Since(began) > s.slow {
		s.close(websocket.StatusTryAgainLater, "you read too slowly; join again after the last event")
	}
	return nil
}

// answer sends the result of a message. Without an id, only an error is sent.
func (s *socket) answer(id string, answer any, err error) {
	switch {
	case err != nil:
		request := "req_" + rand.Text()
		_ = s.write(socketFrame{
			Event: string(journal.KindError), ID: id, Data: s.call.failure(s.call.known(err, request), request),
		})
	case id != "":
		_ = s.write(socketFrame{Event: "accepted", ID: id, Data: answer})
	}
}

// take handles a message.
func (s *socket) take(data []byte) {
	c := *s.call
	c.Context, c.ws, c.Service = s.ctx, s, c.Server.Service.Current()
	message, err := c.readObject(data)
	if err == nil {
		err = mustBeTexts(message, "id", "type")
	}
	if err != nil {
		s.answer("", nil, bad("the message must be a JSON object with a type: %v", err))
		return
	}
	id, _ := message["id"].(string)
	kind, _ := message["type"].(string)
	r := s.call.types[kind]
	if r == nil {
		s.answer(id, nil, bad("type: must be run, join, tool_result, approval, cancel or message"))
		return
	}
	c.route = r
	if c.who, err = c.Server.who(c.r); err != nil {
		s.answer(id, nil, err)
		s.refused(err)
		return
	}
	if err = c.take(ofUser(c.who)); err == nil {
		err = r.check(message)
	}
	if run, ok := message["run_id"].(string); ok && err == nil {
		_, err = whole("run_", run)
	}
	if err != nil {
		s.answer(id, nil, err)
		return
	}
	if kind != "run" && kind != "cancel" { // the others are handled at once, in order
		answer, err := r.do(&c)
		if !errors.Is(err, agent.ErrEarly) {
			s.answer(id, answer, err)
			return
		}
		c.early = true
	}
	select {
	case s.busy <- struct{}{}:
		s.goes(func() {
			answer, err := r.do(&c)
			<-s.busy
			s.answer(id, answer, err)
		})
	default:
		s.answer(id, nil, toolcrib.Errorf(toolcrib.CodeCapacityExceeded,
			"%d messages are being carried out; send this again later", maxBusy))
	}
}

// mustBeTexts returns an error if a member is present and not a string.
func mustBeTexts(message object, names ...string) error {
	kinds := map[reflect.Kind]string{
		reflect.Bool: "bool", reflect.Float64: "number", reflect.Slice: "array", reflect.Map: "object",
	}
	for _, name := range names {
		if kind := kinds[reflect.ValueOf(message[name]).Kind()]; kind != "" {
			return fmt.Errorf("/%s: must not be %s", name, kind)
		}
	}
	return nil
}

// room returns an error if no more runs can be joined.
func (s *socket) room() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.joined) >= maxJoined {
		return toolcrib.Errorf(toolcrib.CodeCapacityExceeded, "%d runs are joined; join more on another connection", maxJoined)
	}
	return nil
}

// join follows a run after an event, until it ends.
func (s *socket) join(who toolcrib.Principal, run toolcrib.RunID, after toolcrib.Seq, sub *worker.Subscription) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.joined[run] {
		sub.Close()
		return toolcrib.Errorf(toolcrib.CodeConflict, "run %s is joined already", run)
	}
	s.joined[run] = true
	ended := sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.joined, run)
	})
	s.goes(func() {
		defer sub.Close()
		f := worker.Follow{Run: string(run), Subscription: sub, After: after}
		err := s.call.pool.Follow(s.ctx, who, f, func(f journal.Frame) error {
			if f.Event == string(journal.KindDone) || f.Event == string(journal.KindError) {
				ended() // the client may join again after it
			}
			return s.write(socketFrame{Run: run, Seq: f.Seq, Event: f.Event, Data: f.Data})
		})
		ended()
		if err != nil && s.ctx.Err() == nil {
			request := "req_" + rand.Text()
			_ = s.write(socketFrame{Run: run, Event: closedEvent, Data: s.call.failure(s.call.known(err, request), request)})
		}
	})
	return nil
}

func (c *call) wsRun(b wsRun) (api.RunNamed, error) {
	r, err := c.request(&b.Body)
	if err != nil {
		return api.RunNamed{}, err
	}
	if !b.Body.Detach {
		if err := c.ws.room(); err != nil { // before anything has begun
			return api.RunNamed{}, err
		}
	}
	if !b.Body.Detach {
		r.Subscription = &worker.Subscription{}
	}
	drive, err := c.startLogged(r)
	if err != nil {
		r.Subscription.Close()
		return api.RunNamed{}, err
	}
	if !b.Body.Detach {
		err = c.ws.join(c.who, drive.ID(), 0, r.Subscription)
	}
	return api.RunNamed{RunID: drive.ID()}, err
}

func (c *call) wsJoin(b wsJoin) (api.RunNamed, error) {
	run, err := c.Service.FindRun(c, c.who, string(b.RunID))
	if err == nil {
		err = c.ws.room()
	}
	if err == nil {
		err = c.ws.join(c.who, run.ID, b.After, nil)
	}
	return api.RunNamed{RunID: run.ID, Status: run.Status}, err
}

func (c *call) wsCancel(b wsJoin) (api.RunNamed, error) {
	run, err := c.pool.Cancel(c.staying(), c.who, string(b.RunID))
	return api.RunNamed{RunID: run.ID, Status: run.Status}, err
}

func (c *call) wsToolResult(b wsToolResult) (api.RunNamed, error) {
	give := c.giveResults
	if c.early {
		give = c.giveEarly
	}
	run, err := give(string(b.RunID), b.ToolResult)
	return api.RunNamed{RunID: run.ID, Status: run.Status}, err
}

func (c *call) wsApproval(b wsApproval) (api.Decided, error) {
	return c.decideOn(b.ApprovalID, b.DecisionRequest)
}

func (c *call) wsMessage(b wsMessage) (api.RunNamed, error) {
	return api.RunNamed{RunID: b.RunID}, c.Service.Say(c, c.who, string(b.RunID), b.Text)
}
