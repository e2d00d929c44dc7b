//go:build unix

package channels_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib/app"
	"github.com/toolcrib/toolcrib/internal/chattest"
	"github.com/toolcrib/toolcrib/internal/postgrestest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/service/channels"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store/postgres"
)

const serving = "CHANNELS_TEST_SERVES"

// TestMain makes the test binary the program if it is called as that.
func TestMain(m *testing.M) {
	if os.Getenv(serving) != "" {
		app.Main(app.Options{})
	}
	os.Exit(m.Run())
}

// process is a server as a process.
type process struct {
	cmd  *exec.Cmd
	kill func() // ends it like a power loss; the second call does nothing
	up   chan struct{}
	once sync.Once
}

// Write reads the log of a process.
func (p *process) Write(data []byte) (int, error) {
	if strings.Contains(string(data), "toolcrib listens on") {
		p.once.Do(func() { close(p.up) })
	}
	return len(data), nil
}

// serve starts a server as a process, with a configuration.
func (h *house) serve(config string) *process {
	h.Helper()
	self, err := os.Executable()
	if err != nil {
		h.Fatal(err)
	}
	p := &process{up: make(chan struct{})}
	p.cmd = exec.Command(self, "--config", filepath.Join(h.dir, config), "serve") //nolint:noctx // it is killed
	p.cmd.Dir, p.cmd.Env = h.dir, append(os.Environ(), serving+"=1", "HOME="+h.dir)
	p.cmd.Stderr = io.MultiWriter(h.Output(), p)
	if err := p.cmd.Start(); err != nil {
		h.Fatal(err)
	}
	p.kill = sync.OnceFunc(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()         // it was killed
	})
	h.Cleanup(p.kill)
	return p
}

// left returns the messages that are neither answered nor known to be in doubt, and those in doubt.
func (h *house) left() (open int, report channels.Report) {
	h.Helper()
	files, err := h.service.Env.Store.SomeFiles(h.Context(), "", channels.Folder+"/chat")
	if err == nil {
		report, err = channels.ReadReport(h.Context(), h.service.Env.Store, "chat")
	}
	if err != nil {
		h.Fatal(err)
	}
	for name := range files {
		if strings.HasSuffix(name, "/message") {
			open++
		}
	}
	return open - len(report.Undelivered), report
}

// times returns how often a text was sent.
func (h *house) times(text string) (n int) {
	for _, one := range h.Sent() {
		if one.Text == text {
			n++
		}
	}
	return n
}

// telling is a model that sends a message by the tool, which asks, and then says that it has.
func (h *house) telling() string {
	return `
- {tool_calls: [{name: message, arguments: {channel: chat, chat_id: "` + h.chat + `", content: "Lunch?"}}]}
- {text: Told.}
`
}

// TestC16_KilledAtEveryRequest kills the process of a server before and after each request takes effect, and starts it
// again. Its user then decides what is asked. A message has one run and one answer, or one that is known to be in doubt,
// and nothing is sent twice unless the user says so. With -short, it takes a sample.
func TestC16_KilledAtEveryRequest(t *testing.T) {
	every := 1
	if testing.Short() {
		every = 5
	}
	for i, doubt := range []string{"not-happened", "retry"} {
		for _, k := range kinds() {
			t.Run(k.name+" "+doubt, func(t *testing.T) {
				if k.once && doubt == "retry" {
					t.SkipNow() // nothing is in doubt
				}
				t.Parallel()
				for n, done := i, false; !done; n += every {
					t.Run(fmt.Sprint(n), func(t *testing.T) { done = killed(t, k, n, doubt) })
				}
			})
		}
	}
}

// killed kills the server at its nth request. It reports whether there was none.
func killed(t *testing.T, k kind, n int, doubt string) (none bool) {
	h := &house{T: t, kind: k, Chat: k.server(t), dir: t.TempDir()}
	h.write("model.script", h.telling())
	h.write("toolcrib.yaml", h.config("listen: \"127.0.0.1:0\"\n"))
	h.load()
	t.Cleanup(h.stop)
	first := h.serve("toolcrib.yaml")
	waittest.Until(t, "messages are received", func() bool { return h.Readers() > 0 })
	var mu sync.Mutex
	steps, at := 0, ""
	h.OnStep(func(method string, done bool) bool {
		if !done && (method == "getUpdates" || method == "/sync") {
			return false // it waits
		}
		mu.Lock()
		defer mu.Unlock()
		if steps++; steps == n {
			at = fmt.Sprintf("%s (done: %v)", method, done)
			first.kill()
			return true
		}
		return false
	})
	died := func() string {
		mu.Lock()
		defer mu.Unlock()
		return at
	}
	h.says(h.eva, "Tell them.")
	second, seen, retried := (*process)(nil), map[string]bool{}, 0
	waittest.Until(t, "all is done", func() bool {
		if second == nil && died() != "" {
			second = h.serve("toolcrib.yaml")
		}
		for _, one := range h.Sent() {
			if i := strings.Index(one.Text, " (apr-"); i < 0 || seen[codeIn(one.Text)] {
				continue
			}
			switch {
			case strings.Contains(one.Text, question):
				h.decides(h.eva, one, "approve")
			case strings.Contains(one.Text, "It is not known whether this happened"):
				h.decides(h.eva, one, doubt)
				retried++
			default:
				continue
			}
			seen[codeIn(one.Text)] = true
		}
		all := h.runs()
		open, _ := h.left()
		return len(all) == 1 && all[0].Status.Ended() && open == 0
	})
	_, report := h.left()
	told, lunch := h.times("Told."), h.times("Lunch?")
	switch {
	case told > 1, told+len(report.Undelivered) < 1, k.once && (told != 1 || lunch != 1 || retried > 0),
		len(report.Undelivered) > 0 && died() == "":
		t.Errorf("killed at %s: answered %d times, %+v", died(), told, report.Undelivered)
	case retried > 1, lunch > 1 && (retried == 0 || doubt != "retry"), lunch < 1 && (retried == 0 || doubt == "retry"):
		t.Errorf("killed at %s: sent %d times, asked about %d times", died(), lunch, retried)
	}
	return died() == "" && n > 0
}

// TestC16_TwoServersWithPostgreSQL: of two servers on one PostgreSQL, one receives. When it is killed in the middle of its
// work, the other one continues, and each message has one run and one answer, or is known to be in doubt. With -short,
// it tries one API.
func TestC16_TwoServersWithPostgreSQL(t *testing.T) {
	all := kinds()
	if testing.Short() {
		all = all[:1]
	}
	for _, k := range all {
		t.Run(k.name, func(t *testing.T) {
			database, err := postgrestest.Start(t.Context())
			if errors.Is(err, postgrestest.ErrMissing) {
				t.Skip("SKIPPED: ", err, "; servers with one PostgreSQL were not tried")
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := database.Stop(); err != nil {
					t.Error(err)
				}
			})
			h := &house{T: t, kind: k, Chat: k.server(t), dir: t.TempDir()}
			address, keys := database.URL("postgres").String(), filepath.Join(h.dir, env.KeysName)
			if _, err := postgres.Migrate(t.Context(), address, postgres.MigrateOptions{Keys: keys}); err != nil {
				t.Fatal(err)
			}
			h.write("model.script", "[{text: Read.}]")
			both := h.config("listen: \"127.0.0.1:0\"\ndatabase: '" + address + "'\nkeys: '" + keys + "'\n")
			h.write("toolcrib.yaml", both)
			h.write("other.yaml", strings.Replace(both, "/data\n", "/other\n", 1))
			h.load()
			t.Cleanup(h.stop)
			first := h.serve("toolcrib.yaml")
			waittest.Until(t, "messages are received", func() bool { return h.Readers() > 0 })
			<-h.serve("other.yaml").up
			write := func(from, to int) {
				for i := from; i < to; i++ { // in a chat of its own
					p := []chattest.Person{h.eva, h.boss}[i%2]
					h.Write(p, chattest.Message{Chat: h.chat + fmt.Sprint(i), Text: "Read."})
				}
			}
			h.user("boss", true)
			write(0, 10)
			waittest.Until(t, "all are answered", func() bool { return h.times("Read.") == 10 })
			if n := h.Readers(); n != 1 {
				t.Errorf("%d connections received at the same time", n)
			}
			var mu sync.Mutex
			sends := 0
			h.OnStep(func(method string, done bool) bool {
				if done || method != "sendMessage" && method != "chat.postMessage" && method != "send" {
					return false
				}
				mu.Lock()
				defer mu.Unlock()
				if sends++; sends == 3 {
					first.kill()
				}
				return sends == 3
			})
			write(10, 30)
			waittest.Until(t, "all are answered", func() bool {
				open, report := h.left()
				return len(h.runs()) >= 30 && open == 0 && h.times("Read.")+len(report.Undelivered) >= 30
			})
			_, report := h.left()
			if runs, told := len(h.runs()), h.times("Read."); runs != 30 || told > 30 || k.once && told != 30 ||
				len(report.Undelivered) > 2*2 {
				t.Errorf("%d runs, %d answers, in doubt: %+v", runs, told, report.Undelivered)
			}
			answered := map[string]bool{}
			for _, one := range h.Sent() {
				if one.Text == "Read." && answered[one.Chat] {
					t.Errorf("chat %s has two answers", one.Chat)
				}
				answered[one.Chat] = answered[one.Chat] || one.Text == "Read."
			}
		})
	}
}
