package cli_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// hook receives webhooks, and verifies on its own what Standard Webhooks says of them.
type hook struct {
	mu       sync.Mutex
	statuses []int
	got      []*hooked
	decide   func(body []byte) // nil = nothing; called for the first request only
}

type hooked struct {
	header http.Header
	body   []byte
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got = append(h.got, &hooked{r.Header, body})
	if len(h.got) == 1 && h.decide != nil {
		h.decide(body)
	}
	status := h.statuses[min(len(h.got), len(h.statuses))-1]
	if status/100 == 3 {
		w.Header().Set("Location", "http://"+r.Host+"/elsewhere")
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "{}")
}

// hooks are the receivers of scripts, by the script's folder.
type hooks struct {
	mu    sync.Mutex
	known map[string]*hook
	ended map[string]chan hookDecided
}

// hookDecided is what became of the command that a receiver ran.
type hookDecided struct {
	code int
	said string
}

// deciding makes what a receiver does that runs the command it was sent: the one that
// begins as args say.
func (k *hooks) deciding(ts *testscript.TestScript, resume bool, args []string) func([]byte) {
	ended := make(chan hookDecided, 1)
	k.ended[ts.Getenv("WORK")] = ended
	program, env, dir := "toolcrib", hookEnv(ts), ts.MkAbs(".")
	for _, folder := range filepath.SplitList(ts.Getenv("PATH")) {
		if path, err := exec.LookPath(filepath.Join(folder, program)); err == nil {
			program = path
			break
		}
	}
	return func(body []byte) {
		var told struct{ Commands []string }
		if err := json.Unmarshal(body, &told); err != nil {
			ended <- hookDecided{-1, err.Error()}
			return
		}
		for _, line := range told.Commands {
			words := strings.Fields(line)
			at := slices.Index(words, args[0]) // behind the flags that were given
			if at < 1 || len(words) < at+len(args) || !slices.Equal(words[at:at+len(args)], args) {
				continue
			}
			if !resume {
				words = slices.DeleteFunc(words, func(w string) bool { return w == "--resume" })
			}
			cmd := exec.Command(program, words[1:]...)
			cmd.Dir, cmd.Env = dir, env
			said, err := cmd.CombinedOutput()
			ended <- hookDecided{exitCode(err), string(said)}
			return
		}
		ended <- hookDecided{-1, "no such command in " + string(body)}
	}
}

// hookEnv is what a script's programs have of the environment.
func hookEnv(ts *testscript.TestScript) []string {
	var env []string
	for _, name := range []string{"HOME", "PATH", "GORACE", "WORK", "HOOK", "HOOKAT", "TMPDIR", "SystemRoot"} {
		if value := ts.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// command is a receiver of webhooks in a script:
//
//	hook listen [STATUS...]  answers with these, the last forever (200), and sets HOOK
//	hook decides [--resume] ARGS
//	                         listens, and before it answers the first request it runs
//	                         the command it was sent that begins with ARGS
//	hook decided CODE        that command ended with this code
//	hook took N [SECRET]     N requests came since; with a secret each is verified. The
//	                         bodies are in hook.N, from 1, and all have the same ID or,
//	                         after !, different ones
//	hook secret NAME         sets NAME to what approvals notify test --show-secrets --json said
func (k *hooks) command(ts *testscript.TestScript, neg bool, args []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name := ts.Getenv("WORK")
	switch args[0] {
	case "listen":
		h := &hook{statuses: []int{http.StatusOK}}
		if len(args) > 1 {
			h.statuses = nil
		}
		for _, text := range args[1:] {
			status, err := strconv.Atoi(text)
			ts.Check(err)
			h.statuses = append(h.statuses, status)
		}
		k.listen(ts, h)
	case "decides":
		h := &hook{statuses: []int{http.StatusOK}}
		k.listen(ts, h)
		resume := args[1] == "--resume"
		if resume {
			args = args[1:]
		}
		decide := k.deciding(ts, resume, args[1:])
		h.mu.Lock()
		h.decide = decide
		h.mu.Unlock()
	case "decided":
		want, err := strconv.Atoi(args[1])
		ts.Check(err)
		if got := <-k.ended[name]; got.code != want {
			ts.Fatalf("exit code %d, want %d\n%s", got.code, want, got.said)
		}
	case "took":
		want, err := strconv.Atoi(args[1])
		ts.Check(err)
		h := k.known[name]
		h.mu.Lock()
		got := h.got
		h.got = nil
		h.mu.Unlock()
		if len(got) != want {
			ts.Fatalf("%d requests, want %d", len(got), want)
		}
		ids := map[string]bool{}
		for i, one := range got {
			ids[one.header.Get("Webhook-Id")] = true
			if len(args) > 2 {
				ts.Check(one.verify(args[2], time.Now()))
			}
			var indented bytes.Buffer
			if json.Indent(&indented, one.body, "", "  ") != nil {
				indented = *bytes.NewBuffer(one.body)
			}
			ts.Check(os.WriteFile(ts.MkAbs(fmt.Sprintf("hook.%d", i+1)), indented.Bytes(), 0o600))
		}
		if len(got) > 1 && (len(ids) > 1) != neg {
			ts.Fatalf("%d requests have %d IDs", len(got), len(ids))
		}
	case "secret":
		var told []struct{ Secret string }
		ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &told))
		if len(told) != 1 || !strings.HasPrefix(told[0].Secret, "whsec_") {
			ts.Fatalf("no secret is shown")
		}
		ts.Setenv(args[1], told[0].Secret)
	default:
		ts.Fatalf("hook listen, decides, decided, took or secret, not %s", args[0])
	}
}

// listen starts a receiver and tells the script where it is.
func (k *hooks) listen(ts *testscript.TestScript, h *hook) {
	server := httptest.NewServer(h)
	ts.Defer(server.Close)
	k.known[ts.Getenv("WORK")] = h
	ts.Setenv("HOOK", server.URL)
	ts.Setenv("HOOKAT", strings.TrimPrefix(server.URL, "http://"))
}

// verify checks a request as its receiver does.
func (h *hooked) verify(secret string, now time.Time) error {
	key := []byte(secret)
	if text, ok := strings.CutPrefix(secret, "whsec_"); ok {
		var err error
		if key, err = base64.StdEncoding.DecodeString(text); err != nil {
			return err
		}
	}
	id, seconds := h.header.Get("Webhook-Id"), h.header.Get("Webhook-Timestamp")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || now.Sub(time.Unix(at, 0)).Abs() > 5*time.Minute {
		return fmt.Errorf("webhook-timestamp %q", seconds)
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, seconds, h.body)
	for one := range strings.FieldsSeq(h.header.Get("Webhook-Signature")) {
		version, text, _ := strings.Cut(one, ",")
		sum, err := base64.StdEncoding.DecodeString(text)
		if version == "v1" && err == nil && id != "" && hmac.Equal(sum, mac.Sum(nil)) {
			return nil
		}
	}
	return fmt.Errorf("the signature %q is none of this key", h.header.Get("Webhook-Signature"))
}
