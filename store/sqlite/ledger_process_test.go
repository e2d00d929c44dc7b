package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/gate"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/provider/script"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

const (
	budgetRuns     = 25 // in each process
	budgetRequests = 10 // a day
)

// drive executes runs of ann at the same time, each with two rounds, and returns how many requests
// were sent to the model.
func drive(ctx context.Context, s *sqlite.Store, name string) (sent int, err error) {
	model, err := script.New(script.Options{Name: "demo", Bytes: []byte("- tool_calls: [{name: none_such, arguments: {}}]\n- text: done\n")})
	if err != nil {
		return 0, err
	}
	counted := &counter{Model: model}
	g, err := gate.New(gate.Options{Availability: gate.Overrides{}})
	if err != nil {
		return 0, err
	}
	ledger, err := s.Ledger([]store.UserBudget{{User: store.EveryUser, Key: "budgets[0]", RequestsPerDay: budgetRequests}})
	if err != nil {
		return 0, err
	}
	runner, err := agent.New(agent.Options{
		Journal: s, Contents: s, Gate: g, Ledger: ledger,
		Models: func(context.Context, journal.ModelInfo) (toolcrib.Model, error) { return counted, nil },
	})
	if err != nil {
		return 0, err
	}
	var wg sync.WaitGroup
	errs := make([]error, budgetRuns)
	for i := range budgetRuns {
		wg.Go(func() {
			var end *agent.State
			end, errs[i] = runner.Run(ctx, agent.Task{
				Agent:  toolcrib.Agent{Name: name, Model: "demo/one", Limits: toolcrib.DefaultLimits()},
				Models: []journal.ModelInfo{{Ref: "demo/one", Provider: "demo", ID: "one"}}, Principal: toolcrib.Principal{User: "ann", Admin: true},
				Prompt: fmt.Sprint(name, i), Workspace: "/nowhere",
				Hosted: agent.Hosted{Driver: "cli"},
			})
			if errs[i] == nil && end.Done.StopReason != toolcrib.StopBudgetExhausted && end.Done.StopReason != toolcrib.StopCompleted {
				errs[i] = fmt.Errorf("run %d: %s", i, end.Done.StopReason)
			}
		})
	}
	wg.Wait()
	return int(counted.requests.Load()), errors.Join(errs...)
}

// counter counts the requests to a model.
type counter struct {
	toolcrib.Model
	requests atomic.Int64
}

func (c *counter) Stream(ctx context.Context, req *toolcrib.Request) iter.Seq2[toolcrib.Delta, error] {
	c.requests.Add(1)
	return c.Model.Stream(ctx, req)
}

// N11: of 100 runs in 4 processes at the same time, all of one user with 10 requests a
// day, exactly 10 requests are sent; every run ends, and says what it lacked.
func TestN11_ProcessesShareABudget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "toolcrib.db")
	var children []*child
	for i := range processes {
		children = append(children, newChild(t, "budget", fmt.Sprint("p", i), path))
	}
	for _, c := range children {
		c.begin()
	}
	sent := 0
	for _, c := range children {
		sent += c.stored()
		c.end()
	}
	if sent != budgetRequests {
		t.Errorf("%d requests were sent, want %d", sent, budgetRequests)
	}
	s := openAt(t, path, sqlite.Options{})
	if all := verifyAll(t, s); all.Runs != processes*budgetRuns {
		t.Errorf("%+v", all)
	}
	rows, err := s.Usage(t.Context(), store.UsageQuery{User: "ann"})
	if err != nil || rows[0].Requests != budgetRequests {
		t.Errorf("%+v, error %v", rows, err)
	}
}

func noon() time.Time { return time.Date(2026, 2, 28, 12, 0, 0, 0, time.UTC) }

// reserveOne sets aside the only request that ann has on a day.
func reserveOne(ctx context.Context, s *sqlite.Store, run toolcrib.RunID, at time.Time) error {
	l, err := s.Ledger([]store.UserBudget{{User: "ann", Key: "budgets[0]", RequestsPerDay: 1}})
	if err != nil {
		return err
	}
	_, err = l.Reserve(ctx, toolcrib.Reservation{Run: run, Request: 1, User: "ann", At: at})
	return err
}

// N11: what a process has reserved that was killed before its request was written down
// counts for some minutes, and then no more.
func TestN11_KilledBeforeTheRequest(t *testing.T) {
	s := open(t)
	c := newChild(t, "reserve", "p", s.Path())
	c.begin()
	c.stored()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Wait(); err == nil {
		t.Error("it was not killed")
	}
	var over *toolcrib.BudgetError
	if err := reserveOne(t.Context(), s, "run_a", noon().Add(time.Minute)); !errors.As(err, &over) {
		t.Errorf("error %v, want a refusal", err)
	}
	if err := reserveOne(t.Context(), s, "run_a", noon().Add(time.Minute+store.ReservationGrace)); err != nil {
		t.Error(err)
	}
}

const tokenCalls = 30

// takeCalls takes as many calls of a token as it is given.
func takeCalls(ctx context.Context, s *sqlite.Store) (taken int, err error) {
	for {
		err := s.Access().Take(ctx, "tok_1", access.Limits{Total: tokenCalls, PerMinute: 1000}, noon())
		var full *access.QuotaError
		if errors.As(err, &full) && full.Bucket == access.BucketTotal {
			return taken, nil
		}
		if err != nil {
			return taken, err
		}
		taken++
	}
}

// M16: the calls of a token are counted over all processes.
func TestM16_ProcessesShareAToken(t *testing.T) {
	path := open(t).Path()
	var children []*child
	for i := range processes {
		children = append(children, newChild(t, "take", fmt.Sprint("p", i), path))
	}
	for _, c := range children {
		c.begin()
	}
	taken := 0
	for _, c := range children {
		taken += c.stored()
		c.end()
	}
	if taken != tokenCalls {
		t.Errorf("%d calls were taken, want %d", taken, tokenCalls)
	}
}
