package remote

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/client"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service"
)

const (
	runID   = "run_00000000000000000000000000"
	message = "id: 5\nevent: message\ndata: {\"text\":\"yes\"}\n\n"
	done    = "id: 6\nevent: done\ndata: {\"status\":\"completed\"}\n\n"
)

// fake is a server of one run, as it answers the nth request of a kind: a number is a status, all else is an answer.
type fake struct {
	mu      sync.Mutex
	n       map[string]int
	answer  func(what string, n int) string
	notices []string
}

// ServeHTTP implements [http.Handler].
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what := r.Method + " " + strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api/runs/"+runID), "/")
	f.mu.Lock()
	f.n[what]++
	text := f.answer(what, f.n[what])
	f.mu.Unlock()
	if strings.HasSuffix(what, " events") {
		w.Header().Set("Content-Type", "text/event-stream")
	} else {
		w.Header().Set("Content-Type", "application/json")
	}
	var status int
	if _, err := fmt.Sscan(text, &status); err == nil {
		w.WriteHeader(status)
		code := map[int]toolcrib.Code{
			http.StatusForbidden: toolcrib.CodeForbidden, http.StatusConflict: toolcrib.CodeConflict,
			http.StatusTooManyRequests: toolcrib.CodeRateLimited, http.StatusServiceUnavailable: toolcrib.CodeOverloaded,
		}
		text = fmt.Sprintf(`{"error":%q,"message":"not now"}`, code[status])
	}
	fmt.Fprint(w, text)
}

// resumed watches a run that was just decided on, and returns the names of the events that were watched.
func resumed(ctx context.Context, t *testing.T, f *fake, front service.Front) (service.Run, string, error) {
	t.Helper()
	f.n = map[string]int{}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	c, err := client.New(client.Options{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	before := &service.Run{ID: runID}
	before.Driver, before.LastSeq = "server", 4
	r := &Service{Client: c, decided: before, Notice: func(text string) { f.notices = append(f.notices, text) }}
	var seen []string
	front.Watch = func(f journal.Frame) { seen = append(seen, f.Event) }
	run, err := r.Resume(ctx, toolcrib.Principal{}, service.ResumeRequest{Run: runID, Decided: true}, front)
	return run, strings.Join(seen, " "), err
}

func view(status toolcrib.Status, last int) string {
	return fmt.Sprintf(`{"id":%q,"status":%q,"last_seq":%d}`, runID, status, last)
}

// A run that was seen to wait, and has ended when it is looked at again, is watched to its end (13.5).
func TestResume_RunThatGoesOnMeanwhile(t *testing.T) {
	f := &fake{answer: func(what string, n int) string {
		switch {
		case what == "GET events" && n == 1:
			return ""
		case what == "GET events":
			return message + done
		case n == 1:
			return view(toolcrib.StatusWaitingForApproval, 4)
		}
		return view(toolcrib.StatusCompleted, 6)
	}}
	run, seen, err := resumed(t.Context(), t, f, service.Front{})
	if err != nil || run.Status != toolcrib.StatusCompleted || seen != "message done" {
		t.Errorf("the run is %s (%v), and its events %q; want completed and message done", run.Status, err, seen)
	}
}

// A cancel that meets the decision of somebody else is tried again, whatever a look at the run gives.
func TestResume_CancelBesideADecision(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	cancelled := make(chan struct{})
	f := &fake{}
	f.answer = func(what string, n int) string {
		switch {
		case what == "GET events" && n == 1:
			return message
		case what == "GET events":
			cancel(&agent.CancelError{By: "ann"})
			f.mu.Unlock()
			<-cancelled
			f.mu.Lock()
			return done
		case what == "POST cancel" && n < 3:
			return []string{"409", "503"}[n-1]
		case what == "POST cancel":
			close(cancelled)
			return "{}"
		case f.n["POST cancel"] == 1:
			return "429"
		case f.n["POST cancel"] < 3:
			return view(toolcrib.StatusRunning, 5)
		}
		return view(toolcrib.StatusCancelled, 6)
	}
	run, seen, err := resumed(ctx, t, f, service.Front{})
	if err != nil || run.Status != toolcrib.StatusCancelled || seen != "message done" || f.n["POST cancel"] != 3 {
		t.Errorf("the run is %s (%v), its events %q, %d requests cancel it; want cancelled, message done, 3",
			run.Status, err, seen, f.n["POST cancel"])
	}
}

// A run that waits and cannot be cancelled is not left without a word.
func TestResume_CancelThatIsRefused(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	f := &fake{}
	f.answer = func(what string, n int) string {
		switch what {
		case "GET events":
			return ""
		case "POST cancel":
			f.mu.Unlock()
			time.Sleep(50 * time.Millisecond) // that it waits is seen first
			f.mu.Lock()
			return "403"
		}
		cancel(&agent.CancelError{By: "ann"})
		return view(toolcrib.StatusWaitingForApproval, 4)
	}
	if run, _, err := resumed(ctx, t, f, service.Front{}); err == nil || !strings.Contains(err.Error(), "not now") {
		t.Errorf("the run is %s, and the error %v; want one that says that it was not cancelled", run.Status, err)
	}
}

// answers is a person who says yes.
type answers struct{ asked chan struct{} }

func (a answers) Answer(context.Context, service.Question) (service.Answer, bool, error) {
	a.asked <- struct{}{}
	return service.Answer{Decision: journal.DecisionApprove}, true, nil
}

// What a call under way asks is put again if the answer did not arrive.
func TestResume_AnswerThatIsLost(t *testing.T) {
	for _, refusal := range []string{"503", "429"} {
		t.Run(refusal, func(t *testing.T) { answerIsLost(t, refusal) })
	}
}

func answerIsLost(t *testing.T, refusal string) {
	person := answers{make(chan struct{}, 2)}
	sent := make(chan struct{}, 2)
	const question = "event: confirmation_required\ndata: {\"approval_id\":\"apr_1\",\"digest\":\"d\",\"kind\":\"input\"," +
		"\"question\":\"Now?\"}\n\n"
	f := &fake{}
	f.answer = func(what string, n int) string {
		switch {
		case what == "GET events" && n == 1:
			return question
		case what == "GET events" && n == 2:
			f.mu.Unlock()
			<-sent
			f.mu.Lock()
			return question
		case what == "GET events":
			f.mu.Unlock()
			<-sent
			f.mu.Lock()
			return done
		case what == "GET " && n < 3:
			return view(toolcrib.StatusRunning, 5)
		case what == "GET ":
			return view(toolcrib.StatusCompleted, 6)
		}
		sent <- struct{}{}
		if len(person.asked) == 1 {
			return refusal
		}
		return "{}"
	}
	run, seen, err := resumed(t.Context(), t, f, service.Front{Person: person})
	if err != nil || run.Status != toolcrib.StatusCompleted || seen != "done" || len(person.asked) != 2 {
		t.Errorf("the run is %s (%v), its events %q, the person was asked %d times; want completed, done, 2",
			run.Status, err, seen, len(person.asked))
	}
}

// A server that is away for a moment when a run is looked at is asked again.
func TestResume_LookDuringARestart(t *testing.T) {
	f := &fake{answer: func(what string, n int) string {
		switch {
		case what == "GET events":
			return message + done
		case n == 1:
			return "503"
		}
		return view(toolcrib.StatusCompleted, 6)
	}}
	run, seen, err := resumed(t.Context(), t, f, service.Front{})
	if err != nil || run.Status != toolcrib.StatusCompleted || seen != "message done" {
		t.Errorf("the run is %s (%v), and its events %q; want completed and message done", run.Status, err, seen)
	}
}
