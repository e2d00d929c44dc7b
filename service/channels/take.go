package channels

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/channel"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/store"
)

// The bounds of a channel.
const (
	maxQueued = 1024     // messages that wait or have a run; then no more are received
	maxText   = 64 << 10 // bytes of a message
	maxAtOnce = 64       // runs
	maxChunk  = 100      // messages that are taken together

	// Of one user:
	maxLanes   = 64 // sessions with a message that is not answered
	runsAtOnce = 2
	perMinute  = 30          // messages
	tellEvery  = time.Minute // that there were too many

	// recentFor is how long an answered message is remembered: longer than an API redelivers it, and than the signature
	// of a webhook is valid.
	recentFor = 15 * time.Minute
	maxRecent = 8192

	retryLeast, retryMost = time.Second, time.Minute
)

// state is stored for each channel.
type state struct {
	Cursor string `json:"cursor"`
	// Recent are the keys of the messages that were taken, with the time in seconds.
	Recent map[string]int64 `json:"recent"`
}

// record is a message that was taken and is not answered.
type record struct {
	Message channel.Message `json:"message"`
	User    string          `json:"user"`
	Known   bool            `json:"known,omitempty"` // the configuration maps the sender to a user
	Seq     int64           `json:"seq"`             // for the order of messages
	Run     toolcrib.RunID  `json:"run,omitempty"`
	Asked   *asked          `json:"asked,omitempty"` // the last question that was posted
	// Sending is what is being sent: the ID of an approval, or answer. "" is nothing.
	Sending string    `json:"sending,omitempty"`
	Part    int       `json:"part,omitempty"`   // parts of the answer that were sent
	Failed  string    `json:"failed,omitempty"` // why the answer may not have arrived
	Since   time.Time `json:"since,omitzero"`   // of Failed

	key    string
	stored []byte // its file, as this process has written it
	lane   *lane
}

// asked is a question that was posted.
type asked struct {
	Approval string          `json:"approval"`
	Digest   string          `json:"digest"`
	Code     string          `json:"code"`
	Question bool            `json:"question,omitempty"` // of the model, which is answered by a text
	Schema   json.RawMessage `json:"schema,omitempty"`   // of that answer
	// Partly is set if not everything could be shown: then it cannot be approved here.
	Partly    bool   `json:"partly,omitempty"`
	MessageID string `json:"message_id,omitempty"`
}

// line is a channel while this process has its lease.
type line struct {
	o    *Options
	name string
	set  config.Channel // when it was opened
	api  channel.Channel
	log  *slog.Logger

	ctx   context.Context
	end   context.CancelCauseFunc
	all   sync.WaitGroup
	slots chan struct{}
	out   chan channel.Reply // texts that are sent once, if there is room
	room  chan struct{}      // signals that a message has left the queue

	taking sync.Mutex // one batch at a time

	held time.Time // when the lease was last renewed; of Channels.serve

	mu     sync.Mutex
	state  state
	queued int
	seq    int64
	lanes  map[string]*lane
	bounds map[string]*bounds // by user
	report Report

	changed          bool      // the report is to be stored
	reported, logged time.Time // when it was stored, and when a refused message was logged
}

// lane holds the messages of a user to one session. One goroutine processes them in order, and ends with the last one.
type lane struct {
	at      string
	bounds  *bounds
	now     *record
	waiting []*record
	came    chan struct{} // signals that the run of now may no longer wait for a person
}

// wake has a lane that waits for a person read the status of its run again.
func (n *lane) wake() {
	select {
	case n.came <- struct{}{}:
	default:
	}
}

// bounds are those of a user.
type bounds struct {
	pace  *rate.Limiter
	slots chan struct{}
	lanes int
	told  time.Time
}

// start opens a channel and continues what was left of it.
func (c *Channels) start(ctx context.Context, name string, set config.Channel) (*line, error) {
	api, err := c.o.Host.Open(name)
	if err != nil {
		return nil, err
	}
	l := &line{
		o: &c.o, name: name, set: set, api: api, log: c.o.Log.With("channel", name),
		slots: make(chan struct{}, maxAtOnce), out: make(chan channel.Reply, maxAtOnce), room: make(chan struct{}, 1),
		held: time.Now(), state: state{Recent: map[string]int64{}},
		lanes: map[string]*lane{}, bounds: map[string]*bounds{},
	}
	l.ctx, l.end = context.WithCancelCause(context.WithoutCancel(ctx))
	records, err := l.load(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range set.Senders(name) {
		if s.User == "" {
			continue
		}
		if _, err := c.o.Runs.Act(ctx, s.User, true); toolcrib.CodeOf(err) == toolcrib.CodeForbidden {
			l.log.Warn("a listed sender cannot write", "sender", s.ID, "user", s.User, "error", err)
		}
	}
	for _, r := range records {
		l.enqueue(r)
	}
	l.all.Go(l.receive)
	l.all.Go(l.speak)
	return l, nil
}

var errEnded = errors.New("the channel has ended")

func (l *line) close() {
	l.mu.Lock() // nothing begins from now on
	l.end(errEnded)
	l.mu.Unlock()
	l.all.Wait()
}

func (l *line) folder() string { return Folder + "/" + l.name }

// load reads the stored records. Messages that were stored but not acknowledged are delivered again, and are known
// then.
func (l *line) load(ctx context.Context) ([]*record, error) {
	all, err := read(ctx, l.o.Host.Files(), l.name, &l.state, &l.report)
	if err != nil {
		return nil, err
	}
	if l.state.Recent == nil {
		l.state.Recent = map[string]int64{}
	}
	var records []*record
	for _, r := range all {
		l.seq = max(l.seq, r.Seq)
		switch {
		case r.Failed == "":
			records = append(records, r)
			l.state.Recent[r.key] = time.Now().Unix()
		case time.Since(r.Since) > keptFor:
			if err := l.forget(r); err != nil {
				return nil, err
			}
		}
	}
	if len(records) > 0 {
		err = l.saveState(ctx, "")
	}
	return records, err
}

const (
	stateFile   = "state/state"
	reportFile  = "report/report"
	messageFile = "message"
)

// read reads the stored files of a channel, and returns its messages in order.
func read(ctx context.Context, files Files, name string, s *state, rep *Report) (records []*record, err error) {
	all, err := files.SomeFiles(ctx, "", Folder+"/"+name)
	for path, data := range all {
		path = strings.TrimPrefix(path, Folder+"/"+name+"/")
		key, file, _ := strings.Cut(path, "/")
		switch {
		case path == stateFile:
			err = json.Unmarshal(data, s)
		case path == reportFile:
			err = json.Unmarshal(data, rep)
		case file == messageFile:
			r := &record{key: key, stored: data}
			err = json.Unmarshal(data, r)
			records = append(records, r)
		}
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(records, func(a, b *record) int { return cmp.Compare(a.Seq, b.Seq) })
	return records, err
}

// saveState stores the messages that are known, and the cursor unless it is "".
func (l *line) saveState(ctx context.Context, cursor string) error {
	l.mu.Lock()
	old := time.Now().Add(-recentFor).Unix()
	maps.DeleteFunc(l.state.Recent, func(_ string, at int64) bool { return at < old })
	l.state.Cursor = cmp.Or(cursor, l.state.Cursor)
	data, err := json.Marshal(l.state)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.o.Host.Files().ChangeFile(ctx, l.folder()+"/"+stateFile, func([]byte) ([]byte, error) { return data, nil })
}

// errFenced reports that another server has the message.
var errFenced = errors.New("another server has changed the message")

// save stores a record, unless another server has changed it.
func (l *line) save(r *record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return l.put(r, data)
}

func (l *line) put(r *record, data []byte) error {
	name := l.folder() + "/" + r.key + "/" + messageFile
	// What was done is stored even if the server is ending.
	err := l.o.Host.Files().ChangeFile(context.WithoutCancel(l.ctx), name, func(before []byte) ([]byte, error) {
		if !bytes.Equal(before, r.stored) && !bytes.Equal(before, data) {
			return nil, errFenced
		}
		return data, nil
	})
	if err == nil {
		r.stored = data
	}
	return err
}

// keyOf returns the key of a message.
func keyOf(m *channel.Message) string { return hash(m.Chat, m.ID) }

func hash(a, b string) string {
	sum := sha256.Sum256([]byte(a + "\x00" + b))
	return hex.EncodeToString(sum[:16])
}

// receive receives messages until the line ends.
func (l *line) receive() {
	pause := retryLeast
	for l.ctx.Err() == nil {
		l.mu.Lock()
		cursor := l.state.Cursor
		l.mu.Unlock()
		took := time.Now()
		err := l.api.Receive(l.ctx, cursor, l.take)
		if l.ctx.Err() != nil {
			return
		}
		if time.Since(took) > retryMost {
			pause = retryLeast
		}
		after := retryLeast
		if err != nil {
			_, asked := channel.ClassOf(err)
			after, pause = max(pause, asked), min(2*pause, retryMost)
			l.log.Warn("messages cannot be received", "error", err, "again_in", after)
		}
		l.problem(err)
		if l.pause(after) != nil {
			return
		}
	}
}

func (l *line) pause(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	case <-t.C:
		return nil
	}
}

// take implements [channel.Take].
func (l *line) take(ctx context.Context, messages []channel.Message, cursor string) error {
	l.taking.Lock()
	defer l.taking.Unlock()
	for chunk := range slices.Chunk(messages, maxChunk) {
		if err := l.waitForRoom(ctx, len(chunk)); err != nil {
			return err
		}
		if err := l.takeSome(ctx, chunk); err != nil {
			return err
		}
	}
	if cursor == "" {
		return nil
	}
	return l.saveState(ctx, cursor)
}

// takeSome takes messages for which there is room.
func (l *line) takeSome(ctx context.Context, messages []channel.Message) error {
	var taken []*record
	for i := range messages {
		m := &messages[i]
		if l.knows(keyOf(m)) {
			continue
		}
		r, err := l.admit(m)
		if err != nil {
			return err
		}
		if r == nil {
			continue
		}
		// A file that exists is of a message that was stored before a crash.
		if err := l.save(r); errors.Is(err, errFenced) {
			continue
		} else if err != nil {
			return err
		}
		taken = append(taken, r)
	}
	if len(taken) == 0 {
		return nil
	}
	for _, r := range taken {
		l.know(&r.Message)
	}
	if err := l.saveState(ctx, ""); err != nil { // none has a run yet, so all may be delivered again
		return err
	}
	for _, r := range taken {
		l.enqueue(r)
	}
	return nil
}

// know remembers a message, so that it is not taken again.
func (l *line) know(m *channel.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Recent[keyOf(m)] = time.Now().Unix()
}

func (l *line) knows(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.state.Recent[key]
	return ok
}

// hasRoom reports whether n messages have room.
func (l *line) hasRoom(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queued+n <= maxQueued && len(l.state.Recent)+n <= maxRecent
}

// waitForRoom waits until n messages have room.
func (l *line) waitForRoom(ctx context.Context, n int) error {
	for !l.hasRoom(n) {
		select {
		case <-l.room:
		case <-time.After(tend): // some messages may be recent no longer
			if err := l.saveState(ctx, ""); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// posted takes one message, or refuses it if there is no room.
func (l *line) posted(ctx context.Context, m channel.Message) (again bool, err error) {
	l.taking.Lock()
	defer l.taking.Unlock()
	if l.knows(keyOf(&m)) {
		return true, nil
	}
	if !l.hasRoom(1) {
		err := toolcrib.Errorf(toolcrib.CodeOverloaded, "too many messages of channel %s wait; try again later", l.name)
		err.RetryAfter = retryLeast
		return false, err
	}
	return false, l.takeSome(ctx, []channel.Message{m})
}

// admit returns the record of a message that starts a run. Of another message it decides or refuses,
// and returns nil.
func (l *line) admit(m *channel.Message) (*record, error) {
	set := l.o.Host.Config().Channels[l.name]
	senders := set.Senders(l.name)
	i := slices.IndexFunc(senders, func(s config.Sender) bool { return s.ID != "" && s.ID == m.Sender })
	if i < 0 {
		l.refused(m)
		if m.PressID != "" { // only who pressed sees it
			l.say(m, "This is not for you to decide.")
		}
		return nil, nil
	}
	user, known := cmp.Or(senders[i].User, l.name+":"+m.Sender), senders[i].User != ""
	if !l.paced(m, user) {
		return nil, nil
	}
	if done, err := l.command(m, user, known); err != nil {
		return nil, err
	} else if done { // known before a later message is taken, which the same command would concern
		l.know(m)
		return nil, l.saveState(l.ctx, "")
	}
	if len(m.Text) > maxText {
		l.say(m, "This message is too long: the limit is 64 KiB of text.")
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lanes[laneOf(l.name, user, m)] == nil && l.boundsOf(user).lanes >= maxLanes {
		l.say(m, "This message was not read: too many of your conversations wait for a decision. Decide or cancel them first.")
		return nil, nil
	}
	l.seq = max(l.seq+1, time.Now().UnixMicro())
	return &record{Message: *m, User: user, Known: known, Seq: l.seq, key: keyOf(m)}, nil
}

// paced reports whether a user has not written too often.
func (l *line) paced(m *channel.Message, user string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.boundsOf(user)
	if b.pace.Allow() {
		return true
	}
	l.report.Dropped++
	l.changed = true
	if time.Since(b.told) > tellEvery {
		b.told = time.Now()
		l.say(m, "There are too many messages; this one is not read. Try again in a minute.")
	}
	return false
}

// boundsOf returns the bounds of the user of a listed sender. The line is locked.
func (l *line) boundsOf(user string) *bounds {
	b := l.bounds[user]
	if b == nil {
		b = &bounds{pace: rate.NewLimiter(rate.Limit(perMinute)/60, perMinute), slots: make(chan struct{}, runsAtOnce)}
		l.bounds[user] = b
	}
	return b
}

// session returns the name of the session of a chat and thread.
func session(name string, m *channel.Message) string {
	text := name + ":" + m.Chat
	if m.Thread != "" {
		text += ":" + m.Thread
	}
	if store.CheckSessionName(text) != nil {
		sum := sha256.Sum256([]byte(text))
		text = name + ":" + hex.EncodeToString(sum[:16])
	}
	return text
}

func laneOf(name, user string, m *channel.Message) string { return user + "\x00" + session(name, m) }

// enqueue adds a record to its lane.
func (l *line) enqueue(r *record) {
	at := laneOf(l.name, r.User, &r.Message)
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.lanes[at]
	if n == nil {
		n = &lane{at: at, bounds: l.boundsOf(r.User), came: make(chan struct{}, 1)}
		l.lanes[at] = n
		n.bounds.lanes++
		if l.ctx.Err() == nil {
			l.all.Go(func() { l.work(n) }) // close waits for it
		}
	}
	l.queued++
	r.lane, n.waiting = n, append(n.waiting, r)
	n.wake()
}

// find returns a message whose question was posted and matches, with a copy of the question, or nil.
func (l *line) find(matches func(*record) bool) (*record, asked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.lanes {
		for _, r := range append([]*record{n.now}, n.waiting...) {
			if r != nil && r.Asked != nil && matches(r) {
				return r, *r.Asked
			}
		}
	}
	return nil, asked{}
}

// left reports that a message has left the queue: it is answered, or waits for a person.
func (l *line) left() {
	l.mu.Lock()
	l.queued--
	l.mu.Unlock()
	select {
	case l.room <- struct{}{}:
	default:
	}
}
