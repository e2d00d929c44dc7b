package shell_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/tool/shell"
	"github.com/toolcrib/toolcrib/toolcribtest/tooltest"
)

// house runs things behind the calls of one run until it is closed.
type house struct {
	made  toolcrib.Tool
	calls int
	ctx   context.Context
	close func()
	all   sync.WaitGroup
}

func newHouse(t *testing.T, options shell.Options) *house {
	t.Helper()
	h := &house{made: tool(t, options)}
	ctx, cancel := context.WithCancelCause(t.Context())
	h.ctx, h.close = ctx, func() {
		cancel(fmt.Errorf("stopped with the run"))
		h.all.Wait()
	}
	t.Cleanup(h.close)
	return h
}

func (h *house) call(t *testing.T, call toolcrib.Call) (map[string]any, error) {
	t.Helper()
	h.calls++
	call.ID, call.Run = fmt.Sprintf("call_%d", h.calls), "run_1"
	call.Behind = func(work func(context.Context)) bool {
		h.all.Go(func() { work(h.ctx) })
		return true
	}
	out, err := h.made.Call(t.Context(), call)
	view := map[string]any{}
	if err == nil {
		err = json.Unmarshal(out.JSON, &view)
	}
	return view, err
}

func (h *house) start(t *testing.T, dir, line string) (map[string]any, error) {
	t.Helper()
	call := callOf(t, dir, line, 0)
	call.Arguments = json.RawMessage(strings.Replace(string(call.Arguments), "{", `{"background":true,`, 1))
	return h.call(t, call)
}

func (h *house) ask(t *testing.T, name, arguments string) map[string]any {
	t.Helper()
	for _, companion := range shell.Companions(h.made) {
		if companion.Spec().Name != name {
			continue
		}
		out, err := companion.Call(t.Context(), toolcrib.Call{ID: "call_x", Run: "run_1", Name: name, Arguments: json.RawMessage(arguments)})
		view := map[string]any{}
		if err == nil {
			err = json.Unmarshal(out.JSON, &view)
		}
		if err != nil {
			t.Fatal(err)
		}
		return view
	}
	t.Fatal(name)
	return nil
}

func TestBackground(t *testing.T) {
	t.Parallel()
	onWalls(t, func(t *testing.T, report *shell.Report) {
		h, dir, m := newHouse(t, shell.Options{Mode: shell.ModeAny, Report: report}), folder(t), mark(t)
		id := func(view map[string]any) string { return fmt.Sprintf(`{"id": %q, "wait": 30}`, view["id"]) }

		// What runs can be read and stopped, with all that it has started.
		apart := ""
		if report.Helper {
			apart = "setsid " // without the helper only the group is ended
		}
		server, err := h.start(t, dir, "echo up; exec 3>&1; "+apart+"sh -c 'echo below >&3; sleep 1000; : "+m+"' & sleep 1000; : "+m)
		if err != nil || server["status"] != "running" {
			t.Fatalf("%v %v", server, err)
		}
		if len(alive(t, m)) == 0 {
			t.Error("nothing runs: the test sees nothing")
		}
		stop := shell.Companions(h.made)[1]
		preview, err := tooltest.Preview(t.Context(), stop, toolcrib.Call{Run: "run_1", Arguments: json.RawMessage(fmt.Sprintf(`{"id": %q}`, server["id"]))})
		if err != nil || !strings.Contains(preview.Text, "echo up; ") {
			t.Errorf("what is stopped: %+v %v", preview, err)
		}
		waittest.Until(t, "both have written", func() bool {
			now := h.ask(t, "read_output", fmt.Sprintf(`{"id": %q, "wait": 0}`, server["id"]))
			output := now["output"].(string)
			below := strings.Contains(output, "below")
			if now["status"] != "running" || below && !strings.Contains(output, "up") {
				t.Fatalf("%v", now)
			}
			return below
		})
		if got := h.ask(t, "stop_process", fmt.Sprintf(`{"id": %q}`, server["id"])); got["status"] != "stopped" || got["message"] != "stopped by stop_process" {
			t.Errorf("%v", got)
		}
		if left := alive(t, m); len(left) > 0 {
			t.Errorf("still running: %q", left)
		}
		if got := h.ask(t, "read_output", id(server)); got["status"] != "stopped" || !strings.Contains(got["output"].(string), "up") {
			t.Errorf("after it was stopped: %v", got)
		}

		// What ends tells its status, and what fails at once is told at once.
		got, err := h.start(t, dir, "echo bad >&2; exit 7")
		for tries := 0; err == nil && got["status"] == "running" && tries < 20; tries++ { // the machine is busy
			_ = h.ask(t, "read_output", id(got))
			got, err = h.start(t, dir, "echo bad >&2; exit 7")
		}
		if err != nil || got["status"] != "exited" || got["exit_code"] != 7.0 || got["output"] != "bad\n" {
			t.Errorf("%v %v", got, err)
		}
		killed, err := h.start(t, dir, "kill -SEGV $$")
		if err != nil {
			t.Fatal(err)
		}
		if got = h.ask(t, "read_output", id(killed)); got["message"] != "killed by signal: segmentation fault" {
			t.Errorf("killed: %v", got)
		}
		long, err := h.start(t, dir, "sleep 1.5; yes line | head -c 300000; echo the end")
		if err != nil {
			t.Fatal(err)
		}
		got = h.ask(t, "read_output", id(long))
		if output := got["output"].(string); got["status"] != "exited" || got["bytes"] != 300008.0 || len(output) != 64<<10 || !strings.HasSuffix(output, "the end\n") {
			t.Errorf("%v %v, %d bytes shown", got["status"], got["bytes"], len(output))
		}

		// At most four at a time, and none of another run.
		for i := range 5 {
			_, err := h.start(t, dir, "sleep 1000; : "+m)
			if i < 4 && err != nil || i == 4 && (err == nil || !strings.HasPrefix(err.Error(), "execution failed: 4 commands")) {
				t.Errorf("number %d: %v", i, err)
			}
		}
		for _, other := range []string{"proc_nobody", "proc_call_1"} {
			for _, companion := range shell.Companions(h.made) {
				out, err := companion.Call(t.Context(), toolcrib.Call{Run: "run_2", Arguments: json.RawMessage(`{"id": "` + other + `"}`)})
				if err != nil || !strings.Contains(string(out.JSON), `"status":"gone"`) {
					t.Errorf("of another run: %s %v", out.JSON, err)
				}
			}
		}

		// In a run that has read untrusted data, so may be what is printed.
		for _, tainted := range []bool{true, false} {
			out, err := shell.Companions(h.made)[0].Call(t.Context(), toolcrib.Call{
				Run: "run_1", Arguments: json.RawMessage(`{"id": "proc_call_2"}`), Tainted: tainted,
			})
			if err != nil || out.Untrusted != tainted {
				t.Errorf("untrusted: %v, tainted: %v, %v", out.Untrusted, tainted, err)
			}
		}

		// With the run all of it ends, and nobody knows it any more.
		h.close()
		if left := alive(t, m); len(left) > 0 {
			t.Errorf("still running: %q", left)
		}
		if got := h.ask(t, "read_output", id(server)); got["status"] != "gone" {
			t.Errorf("after the run: %v", got)
		}
	})
}

// A flood is stopped, in the background too.
func TestBackground_Bounds(t *testing.T) {
	t.Parallel()
	h := newHouse(t, shell.Options{Mode: shell.ModeAny})
	view, err := h.start(t, folder(t), "yes")
	if err != nil {
		t.Fatal(err)
	}
	got := h.ask(t, "read_output", fmt.Sprintf(`{"id": %q, "wait": 30}`, view["id"]))
	if got["status"] == "running" || !strings.Contains(fmt.Sprint(got["message"]), "64 MiB") {
		t.Errorf("%v %v", got["status"], got["message"])
	}
	// Where nothing outlasts a call, nothing is started.
	call := callOf(t, folder(t), "echo x", 0)
	call.Arguments = json.RawMessage(`{"command":"echo x","background":true}`)
	if out, err := h.made.Call(t.Context(), call); err == nil {
		t.Errorf("%s", out.JSON)
	}
}

// What a command prints is told while it runs: whole lines, not too often, not too much.
func TestProgress(t *testing.T) {
	t.Parallel()
	sandboxed(t, func(t *testing.T, report *shell.Report) {
		made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report})
		var mu sync.Mutex
		var told []string
		began := time.Now()
		call := callOf(t, folder(t), "for i in 1 2 3; do echo line $i; sleep 0.3; done; printf half; sleep 0.3; echo; yes filler | head -c 1000000", 0)
		call.Progress = func(message string, _ float64) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, message)
		}
		if _, err := made.Call(t.Context(), call); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		all := strings.Join(told, "\n")
		if len(told) < 2 || !strings.Contains(all, "line 2") || strings.HasSuffix(told[0], "half") {
			t.Errorf("%q", told)
		}
		if most := int(time.Since(began)/(100*time.Millisecond)) + 1; len(told) > most {
			t.Errorf("%d pieces of progress, at most %d", len(told), most)
		}
		for _, text := range told {
			if len(text) > 4<<10 {
				t.Errorf("%d bytes at once", len(text))
			}
		}
	})
}

// What is printed at once is told at once, and what comes soon after it is, too, though nothing follows.
func TestProgress_AtOnce(t *testing.T) {
	t.Parallel()
	sandboxed(t, func(t *testing.T, report *shell.Report) {
		made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report})
		dir, told := folder(t), make(chan string, 100)
		call := callOf(t, dir, "echo first; sleep 0.02; echo second; until [ -e go ]; do sleep 0.01; done", 60)
		call.Progress = func(message string, _ float64) { told <- message }
		ended := make(chan error, 1)
		go func() {
			_, err := made.Call(t.Context(), call)
			ended <- err
		}()
		for all := ""; !strings.Contains(all, "first") || !strings.Contains(all, "second"); {
			select {
			case text := <-told:
				all += text
			case err := <-ended:
				t.Fatalf("told %q before the end: %v", all, err)
			}
		}
		write(t, dir+"/go", "")
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	})
}

// A model reads how a command ended and the end of what it printed, however much that was: what is short
// comes first, and the texts are cut to the bound.
func TestC10_TheEndIsKept(t *testing.T) {
	t.Parallel()
	sandboxed(t, func(t *testing.T, report *shell.Report) {
		made := tool(t, shell.Options{Mode: shell.ModeAny, Report: report})
		fitted := func(out toolcrib.Output, err error) string {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			f := guard.Fit(out, guard.FitOptions{MaxBytes: 2000})
			if !f.Truncated || len(f.Content) > 2000 {
				t.Errorf("%d bytes, truncated %v", len(f.Content), f.Truncated)
			}
			return f.Content
		}
		order := func(text string, want ...string) {
			t.Helper()
			for _, part := range want {
				_, after, ok := strings.Cut(text, part)
				if !ok {
					t.Fatalf("%q is missing or comes too early:\n%s", part, text)
				}
				text = after
			}
		}
		order(fitted(made.Call(t.Context(), callOf(t, folder(t), "seq 1 200000; seq 1 300000 >&2; exit 3", 60))),
			`{"exit_code":3`, `"stdout_truncated":true`, `"_truncated":true`, `"stdout":"1\n2\n`, `199999\n200000\n"`, `"stderr":"1\n2`, `300000\n"}`)
		order(fitted(made.Call(t.Context(), callOf(t, folder(t), "yes", 60))),
			`{"exit_code":-1`, `64 MiB`, `"stdout":"y\n`)
		h := newHouse(t, shell.Options{Mode: shell.ModeAny, Report: report})
		view, err := h.start(t, folder(t), "seq 1 20000; exit 3")
		if err != nil {
			t.Fatal(err)
		}
		read := shell.Companions(h.made)[0]
		order(fitted(read.Call(t.Context(), toolcrib.Call{
			ID: "call_x", Run: "run_1", Name: read.Spec().Name, Arguments: json.RawMessage(fmt.Sprintf(`{"id": %q, "wait": 30}`, view["id"])),
		})), `"exited"`, `"exit_code":3`, `"_truncated":true`, `"output":"\n... [`, `19999\n20000\n"}`)
	})
}

func TestN1_CompanionsConform(t *testing.T) {
	for i := range 2 {
		tooltest.Run(t, func() toolcrib.Tool { return shell.Companions(tool(t, shell.Options{}))[i] }, tooltest.Cases{Calls: []tooltest.Case{
			{Name: "gone", Arguments: `{"id": "proc_x"}`}, {Name: "no id", Arguments: `{}`, Invalid: true, Err: toolcrib.InvalidArguments},
		}})
	}
}
