package channels_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/channel"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/channels"
	"github.com/toolcrib/toolcrib/store"
)

// world is what outlives a server: the database, the runs, the API of the chat and the people there. Each step that
// changes it can be the last one of a server.
type world struct {
	mu       sync.Mutex
	files    map[string][]byte
	runs     map[string]*store.RunRecord // by key
	begun    int                         // requests to begin
	messages []channel.Message           // of people, in order
	came     chan struct{}
	sent     []channel.Reply
	keys     map[string]bool
	notices  []string
	owner    *server
	unknown  string        // a user who does not exist
	parts    []string      // answer of each run
	asking   bool          // runs ask
	once     bool          // the API takes a key once
	slow     bool          // saving the state takes longer than answering
	stuck    chan struct{} // if not nil, Wait returns when it is closed
	config   *config.Config

	steps int
	react func(w *world, r channel.Reply) // what people do; the world is locked
}

func newWorld(t *testing.T, more string) *world {
	c, err := config.Parse("test", []byte(`
channels:
  tg: {type: telegram, url: "telegram://1:a@telegram", inbound: {agent: default, allow: [11, 12, "13=boss"]}}
`+more))
	if err != nil {
		t.Fatal(err)
	}
	return &world{
		files: map[string][]byte{}, runs: map[string]*store.RunRecord{}, came: make(chan struct{}), keys: map[string]bool{},
		config: c, parts: []string{"one", "two"},
	}
}

// write has people write messages.
func (w *world) write(messages ...channel.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writeLocked(messages...)
}

func (w *world) writeLocked(messages ...channel.Message) {
	w.messages = append(w.messages, messages...)
	close(w.came)
	w.came = make(chan struct{})
}

// server is one server. At the step dies it dies: before or after what the step does. Nothing that it does after that
// has an effect.
type server struct {
	*world
	dies  int
	after bool
	dead  bool
	chats *channels.Channels
}

var errDead = errors.New("the server is dead")

func (w *world) start(t *testing.T, dies int, after bool) *server {
	s := &server{world: w, dies: dies, after: after}
	w.steps = 0
	s.chats = channels.New(channels.Options{Host: s, Runs: s, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	return s
}

// step does what has an effect. The world is locked meanwhile.
func (s *server) step(do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return errDead
	}
	s.steps++
	if s.steps == s.dies && !s.after {
		s.dead = true
		return errDead
	}
	err := do()
	if s.steps == s.dies {
		s.dead = true
		return errDead
	}
	return err
}

func (s *server) Config() *config.Config { return s.config }
func (s *server) Files() channels.Files  { return s }

func (s *server) Open(string) (channel.Channel, error) { return chat{server: s}, nil }

func (s *server) Hold(context.Context, string, time.Duration) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner == nil || s.owner.dead {
		s.owner = s
	}
	return s.owner == s && !s.dead, nil
}

func (s *server) Leave(string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner == s {
		s.owner = nil
	}
}

func (s *server) Notice(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dead {
		s.notices = append(s.notices, text)
	}
}

func (s *server) SomeFiles(_ context.Context, _, folder string) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string][]byte{}
	for name, data := range s.files {
		if strings.HasPrefix(name, folder+"/") {
			all[name] = data
		}
	}
	return all, nil
}

func (s *server) File(context.Context, string) ([]byte, error) { return nil, toolcrib.ErrNotFound }

func (s *server) FilesIn(context.Context, string) (map[string][]byte, error) { return nil, nil }

func (s *server) ChangeFile(_ context.Context, name string, change func([]byte) ([]byte, error)) error {
	if s.slow && strings.HasSuffix(name, "/state/state") {
		time.Sleep(time.Second)
	}
	return s.step(func() error {
		after, err := change(s.files[name])
		switch {
		case err != nil:
			return err
		case after == nil:
			delete(s.files, name)
		default:
			s.files[name] = after
		}
		return nil
	})
}

func (s *server) Act(_ context.Context, user string, known bool) (toolcrib.Principal, error) {
	if known && user == s.unknown {
		return toolcrib.Principal{}, toolcrib.Errorf(toolcrib.CodeForbidden, "there is no user %s", user)
	}
	return toolcrib.Principal{User: user, Admin: user == "boss"}, nil
}

func (s *server) Begin(_ context.Context, who toolcrib.Principal, r channels.Request) (id toolcrib.RunID, err error) {
	err = s.step(func() error {
		s.begun++
		rec := s.runs[r.Key]
		if rec == nil {
			rec = &store.RunRecord{ID: toolcrib.RunID(fmt.Sprint("run_", len(s.runs)+1)), User: who.User}
			if s.asking {
				rec.Status = toolcrib.StatusWaitingForApproval
				rec.Pending = &journal.Pending{Kind: "approval", ApprovalID: "apr_" + string(rec.ID), Digest: "d1"}
			} else {
				s.finish(rec)
			}
			s.runs[r.Key] = rec
		}
		id = rec.ID
		return nil
	})
	return id, err
}

func (w *world) finish(rec *store.RunRecord) {
	rec.Status, rec.Pending, rec.Content = toolcrib.StatusCompleted, nil, strings.Join(w.parts, "|")
}

func (s *server) Wait(ctx context.Context, _ toolcrib.RunID) error {
	if s.stuck == nil {
		return nil
	}
	select {
	case <-s.stuck:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// find returns a run. The world is locked.
func (w *world) find(id toolcrib.RunID) *store.RunRecord {
	for _, rec := range w.runs {
		if rec.ID == id {
			return rec
		}
	}
	return nil
}

func (s *server) Look(_ context.Context, run toolcrib.RunID) (store.RunRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rec := s.find(run); rec != nil {
		return *rec, nil
	}
	return store.RunRecord{}, toolcrib.ErrNotFound
}

func (s *server) Approval(_ context.Context, who toolcrib.Principal, id string) (*api.Approval, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.find(toolcrib.RunID(strings.TrimPrefix(id, "apr_")))
	if rec == nil || rec.User != who.User && !who.Admin {
		return nil, toolcrib.ErrNotFound
	}
	v := &api.Approval{ID: id, Run: rec.ID, Status: api.ApprovalDecided, Kind: journal.ApprovalCall, Agent: "default", User: rec.User}
	if rec.Pending != nil {
		v.Status, v.Digest = api.ApprovalPending, rec.Pending.Digest
		v.Calls = []api.ApprovalCall{{ApprovalItem: journal.ApprovalItem{ID: "c1", Name: "write_file", Arguments: []byte(`{}`)}}}
	}
	return v, nil
}

func (s *server) Decide(ctx context.Context, who toolcrib.Principal, d channels.Decision) error {
	v, err := s.Approval(ctx, who, d.Approval)
	if err != nil {
		return err
	}
	return s.step(func() error {
		rec := s.find(v.Run)
		if rec.Pending == nil || rec.Pending.Digest != d.Digest {
			return toolcrib.Errorf(toolcrib.CodeConflict, "approval %s was decided already", v.ID)
		}
		s.finish(rec)
		return nil
	})
}

func (s *server) Cancel(_ context.Context, _ toolcrib.Principal, run toolcrib.RunID) error {
	return s.step(func() error {
		rec := s.find(run)
		rec.Status, rec.Pending = toolcrib.StatusCancelled, nil
		return nil
	})
}

// chat is the API of the chat for a server. A part is what is between two "|".
type chat struct {
	*server
	channel.Usual
}

func (c chat) Deduplicates() bool { return c.once }

func (c chat) Parts(text string) []string { return strings.Split(text, "|") }

func (c chat) Account(context.Context) (string, error) { return "bot", nil }

func (c chat) Send(_ context.Context, r channel.Reply) (id string, err error) {
	err = c.step(func() error {
		if c.once && c.keys[r.Key] {
			return nil
		}
		c.keys[r.Key] = true
		c.sent = append(c.sent, r)
		id = fmt.Sprint("m", len(c.sent))
		if c.react != nil {
			c.react(c.world, r)
		}
		return nil
	})
	return id, err
}

// Receive gives the messages after the cursor, which is their number, one by one.
func (c chat) Receive(ctx context.Context, cursor string, take channel.Take) error {
	n, _ := strconv.Atoi(cursor)
	for {
		c.mu.Lock()
		came, some := c.came, c.messages[n:min(len(c.messages), n+100)]
		c.mu.Unlock()
		if len(some) == 0 {
			select {
			case <-came:
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := take(ctx, some, strconv.Itoa(n+len(some))); err != nil {
			return err
		}
		n += len(some)
	}
}

// approving has people approve each question, once.
func approving(w *world, r channel.Reply) {
	if len(r.Buttons) == 0 {
		return
	}
	w.writeLocked(channel.Message{
		Chat: r.Chat, ID: fmt.Sprint("press", len(w.sent)), Sender: "11", Press: r.Buttons[0].Token, PressID: "p",
	})
}

// cancelling has people cancel the first question, and ask again.
func cancelling(w *world, r channel.Reply) {
	if len(r.Buttons) > 0 && len(w.messages) == 1 {
		w.writeLocked(channel.Message{Chat: r.Chat, ID: "2", Sender: "11", Text: "cancel"},
			channel.Message{Chat: r.Chat, ID: "3", Sender: "11", Text: "Write."})
	}
}

// answers returns how often each part of the answers was sent.
func (w *world) answers() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := map[string]int{}
	for _, r := range w.sent {
		for _, part := range w.parts {
			if r.Text == part {
				n[part]++
			}
		}
	}
	return n
}

// TestC16_CrashAtEveryStep kills the server before and after each step that has an effect. A message is taken once, and
// answered once, or it is known that its answer is in doubt.
func TestC16_CrashAtEveryStep(t *testing.T) {
	for mode := range 16 {
		once, after, asking := mode&1 > 0, mode&2 > 0, mode&4 > 0
		for dies, done := 1, false; !done; dies++ {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "")
				w.asking, w.once, w.react, w.slow = asking, once, approving, mode&8 > 0
				w.write(channel.Message{Chat: "5", ID: "1", Sender: "11", Text: "Write."})
				s := w.start(t, dies, after)
				time.Sleep(time.Minute)
				s.chats.Close()
				done = !s.dead
				s = w.start(t, 0, false)
				time.Sleep(5 * time.Minute)
				s.chats.Close()
				name := fmt.Sprintf("the API takes a key once: %v, the run asks: %v, dies at step %d (after it: %v)", once, asking,
					dies, after)
				n := w.answers()
				if len(w.runs) != 1 {
					t.Errorf("%s: %d runs", name, len(w.runs))
				}
				whole := n["one"] == 1 && n["two"] == 1
				doubt := len(w.notices) == 1 && n["one"] <= 1 && n["two"] <= 1
				if !whole && !doubt || once && !whole {
					t.Errorf("%s: answers %v, notices %q", name, n, w.notices)
				}
				report, err := channels.ReadReport(t.Context(), s, "tg")
				if err != nil || len(report.Undelivered) != len(w.notices) {
					t.Errorf("%s: %+v, %v; %q", name, report, err, w.notices)
				}
				if done && len(w.files) > 1 {
					t.Errorf("%s: %d files are left", name, len(w.files))
				}
			})
		}
	}
}

// TestC16_CancelAtEveryStep: a cancel that is delivered again after a crash does not end the run of a later message.
func TestC16_CancelAtEveryStep(t *testing.T) {
	for _, after := range []bool{false, true} {
		for dies, done := 1, false; !done; dies++ {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "")
				w.asking, w.react = true, cancelling
				w.write(channel.Message{Chat: "5", ID: "1", Sender: "11", Text: "Write."})
				s := w.start(t, dies, after)
				time.Sleep(time.Minute)
				s.chats.Close()
				done = !s.dead
				s = w.start(t, 0, false)
				time.Sleep(5 * time.Minute)
				s.chats.Close()
				statuses := map[toolcrib.Status]int{}
				for _, rec := range w.runs {
					statuses[rec.Status]++
				}
				if statuses[toolcrib.StatusCancelled] != 1 || statuses[toolcrib.StatusWaitingForApproval] != 1 {
					t.Errorf("dies at step %d (after it: %v): %v", dies, after, statuses)
				}
			})
		}
	}
}

// TestC16_Flood: of 10,000 messages, no more than a bounded number is taken from the API before others are done, and of
// one sender only some have a run. Others are answered meanwhile.
func TestC16_Flood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "")
		w.asking = true
		for i := range 10_000 {
			w.write(channel.Message{Chat: fmt.Sprint(i), ID: fmt.Sprint(i), Sender: "11", Text: "Write."})
		}
		w.write(channel.Message{Chat: "77", ID: "1", Sender: "12", Text: "And I?"})
		s := w.start(t, 0, false)
		time.Sleep(time.Minute)
		s.chats.Close()
		if n := len(w.runs); n < 20 || n > 100 {
			t.Errorf("%d runs", n)
		}
		told, other := 0, false
		for _, r := range w.sent {
			if strings.Contains(r.Text, "too many messages") {
				told++
			}
			other = other || r.Chat == "77" && len(r.Buttons) > 0
		}
		if told < 1 || told > 2 || !other {
			t.Errorf("told %d times; the other sender is asked: %v", told, other)
		}
		report, err := channels.ReadReport(t.Context(), s, "tg")
		if err != nil || report.Dropped < 9_000 {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

// TestC16_BackPressure: as long as too many messages wait, no more are received, and none is lost.
func TestC16_BackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		allow := make([]string, 100)
		for i := range allow {
			allow[i] = fmt.Sprint(100 + i)
		}
		w := newWorld(t, "")
		set := w.config.Channels["tg"]
		set.Inbound.Allow = allow
		w.config.Channels["tg"] = set
		w.parts, w.stuck = []string{"one"}, make(chan struct{})
		for i := range 2000 {
			w.write(channel.Message{Chat: "5", ID: fmt.Sprint(i), Sender: allow[i%100], Text: "Read."})
		}
		s := w.start(t, 0, false)
		time.Sleep(time.Minute)
		w.mu.Lock()
		stored := len(w.files)
		w.mu.Unlock()
		if stored > 1024+2 {
			t.Errorf("%d messages were taken", stored)
		}
		close(w.stuck)
		time.Sleep(time.Hour)
		s.chats.Close()
		if n := w.answers()["one"]; n != 2000 {
			t.Errorf("%d answers", n)
		}
	})
}

// TestC16_Refused: who is not listed is not answered, whatever they are called; what is shown of them is bounded.
func TestC16_Refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "")
		for i := range 50 {
			w.write(channel.Message{
				Chat: "5", ID: fmt.Sprint(i), Sender: fmt.Sprint(1000 + i), Name: "11\u202e" + strings.Repeat("<b>", 1000), Text: "Write.",
			})
		}
		w.write(channel.Message{Chat: "5", ID: "long", Sender: "11", Name: "first", Text: strings.Repeat("x", 1<<20)})
		w.write(channel.Message{Chat: "5", ID: "fit", Sender: "11", Name: "second", Text: "Write."})
		s := w.start(t, 0, false)
		time.Sleep(time.Minute)
		s.chats.Close()
		report, err := channels.ReadReport(t.Context(), s, "tg")
		if err != nil || report.Total != 50 || len(report.Refused) != 20 || report.Refused[0].ID != "1049" ||
			len(report.Refused[0].Name) > 210 {
			t.Errorf("%+v, %v", report, err)
		}
		long := slices.ContainsFunc(w.sent, func(r channel.Reply) bool { return r.To == "long" && strings.Contains(r.Text, "too long") })
		if len(w.runs) != 1 || len(w.sent) != 3 || !long {
			t.Errorf("%d runs, sent %+v", len(w.runs), w.sent)
		}
		for _, rec := range w.runs {
			if rec.User != "tg:11" {
				t.Errorf("it runs for %s", rec.User)
			}
		}
	})
}

// TestC16_TwoServers: one of two servers receives, and the other one when the first has died.
func TestC16_TwoServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "")
		first, second := w.start(t, 0, false), w.start(t, 0, false)
		for i := range 5 {
			w.write(channel.Message{Chat: "5", ID: fmt.Sprint(i), Sender: "11", Text: "Read."})
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		w.mu.Lock()
		if n := len(w.sent); w.begun != 5 || n != 10 {
			t.Errorf("%d requests to begin, %d messages", w.begun, n)
		}
		w.owner.dead = true
		w.mu.Unlock()
		w.write(channel.Message{Chat: "5", ID: "last", Sender: "11", Text: "Read."})
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.begun != 6 || len(w.sent) != 12 {
			t.Errorf("%d requests to begin, %d messages", w.begun, len(w.sent))
		}
		first.chats.Close()
		second.chats.Close()
	})
}

// TestC16_DecidedElsewhere: a run continues here when its question was decided elsewhere, and a press comes too late. A
// question that changes is posted again, and the button of the one before decides nothing.
func TestC16_DecidedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "")
		w.asking = true
		w.write(channel.Message{Chat: "5", ID: "1", Sender: "11", Text: "Write."})
		s := w.start(t, 0, false)
		defer s.chats.Close()
		time.Sleep(time.Minute)
		synctest.Wait()
		press := channel.Message{Chat: "5", ID: "p1", Sender: "11", Press: w.sent[0].Buttons[0].Token, PressID: "p"}
		other := press
		other.Chat, other.ID = "6", "p2" // in another chat
		w.write(other)
		time.Sleep(time.Minute)
		synctest.Wait()
		w.mu.Lock()
		run := w.find("run_1")
		if run.Pending == nil {
			w.mu.Unlock()
			t.Fatal("a press in another chat has decided")
		}
		run.Pending = &journal.Pending{Kind: "approval", ApprovalID: run.Pending.ApprovalID, Digest: "d2"}
		w.mu.Unlock()
		w.write(press) // of the question before
		time.Sleep(time.Minute)
		synctest.Wait()
		w.mu.Lock()
		if run.Pending == nil {
			t.Error("it is decided")
		}
		for _, r := range w.sent[1:] {
			if !strings.Contains(r.Text, "Nothing is decided") {
				t.Errorf("%q", r.Text)
			}
		}
		said := len(w.sent)
		w.finish(run) // by another way
		w.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := w.answers(); n["one"] != 1 || len(w.sent) != said+2 {
			t.Errorf("answers %v of %d", n, len(w.sent)-said)
		}
		press.ID = "p3"
		w.write(press)
		time.Sleep(time.Minute)
		synctest.Wait()
		if last := w.sent[len(w.sent)-1]; !strings.Contains(last.Text, "has the code") {
			t.Errorf("%q", last.Text)
		}
	})
}

// closed is a host whose channel cannot be opened.
type closed struct {
	*server
	tries int
}

func (c *closed) Open(string) (channel.Channel, error) {
	c.tries++
	return nil, errors.New("its token is not there")
}

// A channel that cannot be opened is logged once for each configuration, not at each attempt.
func TestC16_UnopenedIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := &closed{server: &server{world: newWorld(t, "")}}
		chats := channels.New(channels.Options{Host: c, Runs: c, Log: slog.New(slog.NewTextHandler(&log, nil))})
		time.Sleep(time.Minute)
		chats.Close()
		if got := strings.Count(log.String(), "its token is not there"); got != 1 || c.tries < 10 {
			t.Errorf("%d lines after %d attempts:\n%s", got, c.tries, log.String())
		}
	})
}

// A listed sender whose user does not exist is logged when the channel is opened.
func TestC16_UnknownUserIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := newWorld(t, "")
		w.unknown = "boss"
		s := &server{world: w}
		chats := channels.New(channels.Options{Host: s, Runs: s, Log: slog.New(slog.NewTextHandler(&log, nil))})
		time.Sleep(time.Minute)
		chats.Close()
		if got := strings.Count(log.String(), "there is no user"); got != 1 {
			t.Errorf("%d lines:\n%s", got, log.String())
		}
	})
}

// A cancel of a message that waits for its turn says so: it has no run that could be cancelled.
func TestC16_CancelBeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "")
		w.stuck = make(chan struct{})
		s := w.start(t, 0, false)
		for _, chat := range []string{"5", "6", "7"} { // a user has two runs at a time
			w.write(channel.Message{Chat: chat, ID: "1", Sender: "11", Text: "Write."})
			time.Sleep(time.Minute)
		}
		w.write(channel.Message{Chat: "7", ID: "2", Sender: "11", Text: "cancel"},
			channel.Message{Chat: "8", ID: "2", Sender: "11", Text: "cancel"})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(w.runs) != 2 || len(w.sent) != 2 || !strings.Contains(w.sent[0].Text, "not been started") ||
			!strings.Contains(w.sent[1].Text, "Nothing is running") {
			t.Errorf("%d runs, sent %+v", len(w.runs), w.sent)
		}
		close(w.stuck)
		s.chats.Close()
	})
}
