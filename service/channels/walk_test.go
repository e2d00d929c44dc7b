package channels_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/telegramtest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/channels"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

var root = toolcrib.Principal{User: "local:root", Admin: true}

// house is a server with channels, on a data folder.
type house struct {
	*testing.T
	dir     string
	service *service.Service
	pool    *service.Pool
	chats   *channels.Channels

	mu      sync.Mutex
	notices []string
}

// writing is a model that writes a file, which asks, and then says that it has.
const writing = `
- {tool_calls: [{name: write_file, arguments: {path: notes.txt, content: "hello‮txt"}}]}
- {text: "It is *written*, see https://example.com."}
`

// open starts a server with the channel tg, whose agent plays a script.
func open(t *testing.T, address, script, more string) *house {
	t.Helper()
	h := &house{T: t, dir: t.TempDir()}
	h.write("model.script", script)
	h.write("toolcrib.yaml", fmt.Sprintf(`
providers: {demo: {type: script, file: model.script}}
agents: {default: {model: demo/x}}
channels:
  tg:
    type: telegram
    url: %s
    inbound: {agent: default, allow: [11, "telegram:12=ann", "13=boss"]}
%s`, address, more))
	h.start()
	t.Cleanup(h.stop)
	return h
}

func (h *house) write(name, text string) {
	h.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
		h.Fatal(err)
	}
}

func (h *house) start() {
	h.Helper()
	c, err := config.Load(config.Source{Path: filepath.Join(h.dir, "toolcrib.yaml"), Origin: config.OriginFlag}, nil)
	if err != nil {
		h.Fatal(err)
	}
	h.service = service.New(env.Options{
		Config: c, DataDir: filepath.Join(h.dir, "data"), Driver: env.DriverServer, NoSandbox: func() string { return "" },
		Notice: func(text string) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.notices = append(h.notices, text)
		},
	})
	if err := h.service.Env.OpenFor(h.Context(), root); err != nil {
		h.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(h.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	if h.pool, err = h.service.NewPool(log, nil); err != nil {
		h.Fatal(err)
	}
	h.chats = h.pool.Channels(log)
}

func (h *house) stop() {
	if h.chats == nil {
		return
	}
	h.chats.Close()
	if err := h.pool.Close(h.Context()); err != nil && h.Context().Err() == nil {
		h.Error(err)
	}
	if err := h.service.Close(); err != nil {
		h.Error(err)
	}
	h.chats = nil
}

func (h *house) user(name string, admin bool) {
	h.Helper()
	u := access.NewUser{User: access.User{Name: name, Admin: admin}}
	if _, err := h.service.Env.Store.Access().AddUser(h.Context(), u, "test"); err != nil {
		h.Fatal(err)
	}
}

// runs returns the runs of the store, newest first.
func (h *house) runs() []store.RunRecord {
	h.Helper()
	page, err := h.service.Env.Store.Runs(h.Context(), store.Filter{Limit: store.MaxLimit})
	if err != nil {
		h.Fatal(err)
	}
	return page.Runs
}

// sent waits until the bot has sent n messages, and returns them.
func sent(t *testing.T, s *telegramtest.Server, n int) []telegramtest.Sent {
	t.Helper()
	waittest.Until(t, fmt.Sprintf("%d messages are sent", n), func() bool { return len(s.Sent()) >= n })
	return s.Sent()
}

func telegram(t *testing.T) *telegramtest.Server {
	s := telegramtest.New()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		if all := s.Problems(); len(all) > 0 {
			t.Errorf("the API refuses: %q", all)
		}
	})
	return s
}

var (
	eva  = telegramtest.Person{ID: 11, Name: "Eva"}
	ann  = telegramtest.Person{ID: 12, Name: "Ann"}
	boss = telegramtest.Person{ID: 13, Name: "Boss"}
	mal  = telegramtest.Person{ID: 66, Name: "Eva"} // has the name of another
)

// A message becomes a run, whose question has buttons in the same chat and thread; a decision there continues it, and
// the answer comes there.
func TestC16_Telegram_ApprovedInTheChat(t *testing.T) {
	tg := telegram(t)
	h := open(t, tg.Address(), writing, "server: {origin: \"https://crib.example\"}\n")
	h.user("ann", false)
	h.user("boss", true)
	topic := map[string]any{"is_topic_message": true, "message_thread_id": 7, "chat": map[string]any{"id": 5}}
	asked := tg.Write(5, eva, "Write it.", topic)
	q := sent(t, tg, 1)[0]
	for _, want := range []string{"write_file", "notes.txt", "[U+202E]", "tg:11", "https://crib.example/approvals/apr_", "approve apr-"} {
		if !strings.Contains(q.Text, want) {
			t.Errorf("the question has no %q: %s", want, q.Text)
		}
	}
	if q.Chat != 5 || q.Thread != 7 || q.ReplyTo != asked || len(q.Buttons) != 2 {
		t.Fatalf("%+v", q)
	}

	tg.Press(mal, q, q.Buttons["Approve"]) // who is not listed
	if got := sent(t, tg, 2)[1]; got.Press == "" || !strings.Contains(got.Text, "not for you") {
		t.Errorf("%+v", got)
	}
	tg.Press(ann, q, q.Buttons["Approve"]) // who is listed, and may not decide
	if got := sent(t, tg, 3)[2]; got.Press == "" || !strings.Contains(got.Text, "Nothing is decided") {
		t.Errorf("%+v", got)
	}
	tg.Press(eva, q, "approve apr-aaaaaaaa") // a token of her own
	if got := sent(t, tg, 4)[3]; !strings.Contains(got.Text, "not open in this chat") {
		t.Errorf("%+v", got)
	}
	if s := h.runs()[0].Status; s != toolcrib.StatusWaitingForApproval {
		t.Fatal(s)
	}
	tg.Press(eva, q, q.Buttons["Approve"])
	all := sent(t, tg, 7) // the answers to the press, and of the run
	last := all[6]
	for _, one := range all[4:] {
		if strings.Contains(one.Text, "written") {
			last = one
		}
	}
	if last.Text != "It is *written*, see https://example.com." || last.Chat != 5 || last.Thread != 7 || last.ReplyTo != asked {
		t.Errorf("%+v", last)
	}
	run := h.runs()[0]
	if run.Status != toolcrib.StatusCompleted || run.User != "tg:11" || len(h.runs()) != 1 {
		t.Errorf("%+v", run)
	}
	tg.Press(eva, q, q.Buttons["Approve"]) // too late
	if got := sent(t, tg, 8)[7]; !strings.Contains(got.Text, "Nothing is decided") {
		t.Errorf("%+v", got)
	}
}
