package worker_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/queue"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/worker"
	"github.com/toolcrib/toolcrib/store"
)

const poolConfig = `
providers:
  slow: {type: script, file: slow.script}
  quick: {type: script, file: quick.script}
  asks: {type: script, file: asks.script}
  fails: {type: script, file: fails.script}
  pair: {type: script, file: pair.script}
  api: {type: openai, api: chat, api_key: none, max_concurrent: 1, base_url: "${env:POOL_TEST_API}"}
retry: {first: 1s, max_elapsed: 1s, park: 24h}
agents:
  default: {model: quick/x}
  slow: {model: slow/x}
  asks: {model: asks/x}
  fails: {model: fails/x}
  remote: {model: api/x}
  pair: {model: pair/x, budget: {max_requests: 10}}
  hasty: {model: pair/x, limits: {wall_time: 2s}}
`

// poolHouse is a data folder with a pool on it.
type poolHouse struct {
	t    *testing.T
	dir  string
	more string
	wrap func(store.Store) store.Store // what open does with the store; may be nil
	s    *service.Service
	pool *service.Pool
}

var ann = toolcrib.Principal{User: "ann"}

func poolOn(t *testing.T, more string, lease time.Duration, wrap func(queue.Queue) queue.Queue) *poolHouse {
	t.Helper()
	h := newHouse(t, more)
	h.s, h.pool = h.open(lease, wrap)
	return h
}

// newHouse returns a data folder without a pool.
func newHouse(t *testing.T, more string) *poolHouse {
	t.Helper()
	h := &poolHouse{t: t, dir: t.TempDir(), more: more}
	for name, text := range map[string]string{
		"slow.script": "- {text: slowly, delay: 1500ms}\n", "quick.script": "- {text: done}\n",
		"asks.script": "- tool_calls: [{name: write_file, arguments: {path: out.txt, content: hello}}]\n- {text: done}\n",
		"pair.script": "- tool_calls:\n  - {name: spawn, arguments: {agent: default, task: go}}\n" +
			"  - {name: spawn, arguments: {agent: remote, task: go}}\n- {text: all done}\n",
		"fails.script": "- tool_calls: [{name: current_time, arguments: {}}]\n- {error: overloaded}\n",
	} {
		h.write(name, text)
	}
	return h
}

// write writes a file atomically, because a worker may be reading it.
func (h *poolHouse) write(name, text string) {
	h.t.Helper()
	file := filepath.Join(h.dir, name)
	err := os.WriteFile(file+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// open opens the folder once more, like another process.
func (h *poolHouse) open(lease time.Duration, wrap func(queue.Queue) queue.Queue) (*service.Service, *service.Pool) {
	h.t.Helper()
	return h.openIn(filepath.Join(h.dir, "data"), lease, wrap)
}

// openIn opens a data folder with the configuration of the house.
func (h *poolHouse) openIn(data string, lease time.Duration, wrap func(queue.Queue) queue.Queue) (
	*service.Service, *service.Pool,
) {
	h.t.Helper()
	s, p, err := h.tryIn(data, lease, wrap)
	if err != nil {
		h.t.Fatal(err)
	}
	return s, p
}

func (h *poolHouse) tryIn(data string, lease time.Duration, wrap func(queue.Queue) queue.Queue) (
	*service.Service, *service.Pool, error,
) {
	h.t.Helper()
	h.write("toolcrib.yaml", poolConfig+h.more)
	c, err := config.Load(config.Source{Path: filepath.Join(h.dir, "toolcrib.yaml"), Origin: config.OriginFlag}, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	s := service.New(env.Options{
		Config: c, DataDir: data, Driver: "server", NoSandbox: func() string { return "" },
		Lease: lease,
	})
	if err := s.Env.Open(h.t.Context()); err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	if h.wrap != nil {
		s.Env.Store = h.wrap(s.Env.Store)
	}
	p, err := s.NewPool(slog.New(slog.DiscardHandler), wrap)
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	h.t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			h.t.Error(err)
		}
		_ = s.Close()
	})
	return s, p, nil
}

func (h *poolHouse) start(name string) *worker.Drive {
	h.t.Helper()
	d, err := h.pool.Start(h.t.Context(), ann, h.request(name))
	if err != nil {
		h.t.Fatal(err)
	}
	return d
}

// queue queues a new run, like one that another process has begun.
func (h *poolHouse) queue(name string) *worker.Drive {
	h.t.Helper()
	run, err := h.s.Detach(h.t.Context(), ann, h.request(name))
	if err != nil {
		h.t.Fatal(err)
	}
	h.pool.Put(run.ID)
	return h.pool.Drive(run.ID)
}

func (h *poolHouse) request(name string) service.StartRequest {
	return service.StartRequest{Agent: name, Prompt: "Go.", Workspace: h.t.TempDir(), Approve: agent.ApproveNone}
}

func (h *poolHouse) record(run toolcrib.RunID) store.RunRecord {
	h.t.Helper()
	rec, err := h.s.Env.Store.Run(h.t.Context(), run)
	if err != nil {
		h.t.Fatal(err)
	}
	return rec
}

// patience is how long a test waits for an event on a busy machine.
const patience = 2 * time.Minute

// becomes waits until a run has a status.
func (h *poolHouse) becomes(run toolcrib.RunID, want toolcrib.Status) {
	h.t.Helper()
	waittest.Until(h.t, fmt.Sprintf("run %s is %s", run, want), func() bool { return h.record(run).Status == want })
}

// takenUp returns how often a run was taken up.
func (h *poolHouse) takenUp(run toolcrib.RunID) (n int) {
	h.t.Helper()
	for e, err := range h.s.Env.Store.Read(h.t.Context(), run, 0) {
		if err != nil {
			h.t.Fatal(err)
		}
		if e.Body.EventKind() == journal.KindTakenUp {
			n++
		}
	}
	return n
}

// cutOff is a store that renews no leases, like one that cannot be reached.
type cutOff struct {
	store.Store
	cut     atomic.Bool
	wait    chan struct{} // renewals wait until it is closed; may be nil
	renewed atomic.Int32
	swept   atomic.Int32
	looked  atomic.Int32 // how often the lease of the sweep was looked at
	page    int          // runs that a sweep finds at a time; 0 means as many as it asks for
}

func (s *cutOff) Undriven(
	ctx context.Context, driver, site string, after toolcrib.RunID, limit int,
) ([]toolcrib.RunID, bool, error) {
	if after == "" {
		s.swept.Add(1)
	}
	return s.Store.Undriven(ctx, driver, site, after, cmp.Or(s.page, limit))
}

func (s *cutOff) Leases(ctx context.Context, f store.LeaseFilter) ([]store.Lease, error) {
	if slices.Contains(f.Runs, "sweep") {
		defer s.looked.Add(1)
	}
	return s.Store.Leases(ctx, f)
}

func (s *cutOff) RenewLeases(ctx context.Context) ([]store.Lease, error) {
	if s.wait != nil {
		<-s.wait
	}
	if s.cut.Load() {
		return nil, &store.Error{Kind: store.ErrUnavailable}
	}
	s.renewed.Add(1)
	return s.Store.RenewLeases(ctx)
}

// sweeping has the next server that is opened count its sweeps. swept waits for two more.
func (h *poolHouse) sweeping() (swept func()) {
	var s *cutOff
	h.wrap = func(inner store.Store) store.Store {
		h.wrap, s = nil, &cutOff{Store: inner}
		return s
	}
	return func() {
		h.t.Helper()
		was := s.swept.Load()
		waittest.Until(h.t, "two sweeps", func() bool { return s.swept.Load() >= was+2 })
	}
}

// sweptPool is poolOn with a function that waits for two sweeps.
func sweptPool(t *testing.T, more string) (h *poolHouse, swept func()) {
	t.Helper()
	h = newHouse(t, more)
	swept = h.sweeping()
	h.s, h.pool = h.open(time.Minute, nil)
	return h, swept
}

// A process that cannot renew the leases of its runs leaves them, and another process continues them. The journal
// accepts nothing more from the first one, and each call is made once.
func TestPool_CutOff(t *testing.T) {
	const lease = time.Second
	h := newHouse(t, "")
	h.wrap = func(s store.Store) store.Store {
		cut := &cutOff{Store: s}
		cut.cut.Store(true)
		return cut
	}
	h.s, h.pool = h.open(lease, nil)
	h.wrap = nil
	h.write("slow.script", "- {text: never, delay: 10m}\n")
	d := h.start("slow")
	_, other := h.open(lease, nil)
	waittest.Until(t, "another process continues the run", func() bool { return h.takenUp(d.ID()) > 1 && !h.pool.HasWorker(d.ID()) })
	if run, err := other.Cancel(t.Context(), ann, string(d.ID())); err != nil || run.Status != toolcrib.StatusCancelled {
		t.Errorf("%+v, %v", run, err)
	}
	if err := d.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if v, err := h.s.Env.Store.Verify(t.Context(), d.ID()); err != nil {
		t.Errorf("%+v, %v", v, err)
	}
}

// heard is a journal that calls hear before each append, which may refuse it.
type heard struct {
	toolcrib.Journal
	hear func(run toolcrib.RunID, events []toolcrib.Event) error
	then func(run toolcrib.RunID, events []toolcrib.Event) // called after an append; may be nil
}

func (j *heard) Append(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq, events ...toolcrib.Event) error {
	if err := j.hear(run, events); err != nil {
		return err
	}
	err := j.Journal.Append(ctx, run, after, events...)
	if err == nil && j.then != nil {
		j.then(run, events)
	}
	return err
}

// A new run is started, taken up and about to ask its model in one append, and then Start returns. The pool knows the
// run before that, so that no other worker takes it and its followers see it from the first event.
func TestPool_BeginsInOneAppend(t *testing.T) {
	h := poolOn(t, "", time.Minute, nil)
	var kinds []toolcrib.Kind
	h.s.Env.Observe = func(j toolcrib.Journal) toolcrib.Journal {
		return &heard{Journal: j, hear: func(run toolcrib.RunID, events []toolcrib.Event) error {
			if len(kinds) > 0 {
				return nil
			}
			for _, e := range events {
				kinds = append(kinds, e.Body.EventKind())
			}
			if !h.pool.HasWorker(run) {
				t.Error("the run is written down before the pool knows it")
			}
			return nil
		}}
	}
	r := h.request("default")
	r.Subscription = &worker.Subscription{}
	defer r.Subscription.Close()
	d, err := h.pool.Start(t.Context(), ann, r)
	if err != nil {
		t.Fatal(err)
	}
	if want := []toolcrib.Kind{
		journal.KindRunStarted, journal.KindTakenUp,
		journal.KindModelRequest,
	}; !slices.Equal(kinds, want) {
		t.Errorf("the first append has %v, want %v", kinds, want)
	}
	if h.record(d.ID()).ID != d.ID() {
		t.Error("Start returned before the run was written down")
	}
	var first toolcrib.Seq
	if err := h.pool.Follow(t.Context(), ann, worker.Follow{Run: string(d.ID()), Subscription: r.Subscription},
		func(f journal.Frame) error {
			first = cmp.Or(first, f.Seq)
			return nil
		}); err != nil || first != 1 {
		t.Errorf("its stream begins with event %d, error %v", first, err)
	}
}

// A process that was suspended for longer than a lease loses no run: one that it was about to append is started, and
// one that has paused meanwhile is left.
func TestPool_StandsStill(t *testing.T) {
	const lease = 300 * time.Millisecond
	h := poolOn(t, "", lease, nil)
	h.s.Env.Observe = func(j toolcrib.Journal) toolcrib.Journal {
		return &heard{Journal: j, hear: func(_ toolcrib.RunID, events []toolcrib.Event) error {
			if events[0].Body.EventKind() == journal.KindRunStarted {
				start := time.Now()
				waittest.Until(t, "some leases pass", func() bool { return time.Since(start) > 5*lease })
			}
			return nil
		}, then: func(run toolcrib.RunID, events []toolcrib.Event) {
			if events[len(events)-1].Body.EventKind() == journal.KindPaused {
				h.pool.Lose(run)
			}
		}}
	}
	for name, want := range map[string]toolcrib.Status{
		"default": toolcrib.StatusCompleted, "asks": toolcrib.StatusWaitingForApproval,
	} {
		d := h.start(name)
		if err := d.Wait(t.Context()); err != nil || h.record(d.ID()).Status != want {
			t.Errorf("%v, %s", err, h.record(d.ID()).Status)
		}
		if err := h.pool.Follow(t.Context(), ann, worker.Follow{Run: string(d.ID()), Parks: true}, func(journal.Frame) error { return nil }); err != nil {
			t.Error(err)
		}
		drives := func() int {
			n, _, _, _ := h.pool.Held()
			return n
		}
		waittest.Until(t, "the run has no drive", func() bool { return drives() == 0 })
	}
}

// A run that is cancelled while its worker stops, because that has lost its lease, ends as cancelled.
func TestPool_CancelledWhenLost(t *testing.T) {
	h := poolOn(t, "", time.Minute, nil)
	h.write("slow.script", "- tool_calls: [{name: list_directory, arguments: {path: .}}]\n- {text: never, delay: 10m}\n")
	var once sync.Once
	cancelled := make(chan error, 1)
	h.s.Env.Observe = func(j toolcrib.Journal) toolcrib.Journal {
		return &heard{Journal: j, hear: func(run toolcrib.RunID, events []toolcrib.Event) error {
			if events[0].Body.EventKind() != journal.KindToolResult {
				return nil
			}
			once.Do(func() {
				d := h.pool.Drive(run)
				h.pool.Lose(run)
				go func() {
					_, err := h.pool.Cancel(t.Context(), ann, string(run))
					cancelled <- err
				}()
				waittest.Until(t, "the drive is stopped", func() bool { return h.pool.Stopping(d) })
			})
			return nil
		}}
	}
	d := h.start("slow")
	if err := <-cancelled; err != nil || h.record(d.ID()).Status != toolcrib.StatusCancelled {
		t.Errorf("%v, %s", err, h.record(d.ID()).Status)
	}
}

// If a run cannot be appended to the journal, Start returns the error and nothing is left behind.
func TestPool_NotWrittenDown(t *testing.T) {
	h := poolOn(t, "", time.Minute, nil)
	refused := errors.New("no room")
	h.s.Env.Observe = func(j toolcrib.Journal) toolcrib.Journal {
		return &heard{Journal: j, hear: func(toolcrib.RunID, []toolcrib.Event) error { return refused }}
	}
	r := h.request("default")
	r.Subscription = &worker.Subscription{}
	if d, err := h.pool.Start(t.Context(), ann, r); !errors.Is(err, refused) || d != nil {
		t.Errorf("%v, %v", d, err)
	}
	r.Subscription.Close()
	h.s.Env.Observe = func(toolcrib.Journal) toolcrib.Journal { panic("not ready") }
	if d, err := h.pool.Start(t.Context(), ann, h.request("default")); err == nil || d != nil {
		t.Errorf("%v, %v", d, err)
	}
	if _, err := h.pool.Start(t.Context(), ann, h.request("nobody")); toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
		t.Errorf("an agent that there is not: %v", err)
	}
	if a, b, c, d := h.pool.Held(); a+b+c+d != 0 {
		t.Errorf("the pool holds %d drives, %d runs, %d failures, %d followed runs", a, b, c, d)
	}
}

// A queue that has lost all runs is filled again from the store.
func TestPool_LostQueue(t *testing.T) {
	q := &forgetful{}
	h := poolOn(t, "", time.Minute, func(inner queue.Queue) queue.Queue { q.Queue = inner; return q })
	q.forget.Store(true)
	d := h.queue("default")
	if rec := h.record(d.ID()); rec.Status != toolcrib.StatusQueued {
		t.Fatalf("it is %s, though the queue has lost it", rec.Status)
	}
	q.forget.Store(false)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := d.Wait(ctx); err != nil || h.record(d.ID()).Status != toolcrib.StatusCompleted {
		t.Errorf("%v, %s", err, h.record(d.ID()).Status)
	}
}

// Runs that no process drives and that do not continue hide no later one, however many they are.
func TestPool_LostAmongMany(t *testing.T) {
	h := newHouse(t, "")
	h.wrap = func(s store.Store) store.Store { return &cutOff{Store: s, page: 2} }
	q := &forgetful{}
	q.forget.Store(true)
	h.s, h.pool = h.open(time.Minute, func(inner queue.Queue) queue.Queue { q.Queue = inner; return q })
	for range 5 {
		fails := h.queue("default").ID()
		h.pool.Delay(fails, time.Hour)
		if h.pool.Carry(fails); h.record(fails).Status != toolcrib.StatusQueued {
			t.Error("a run that is to wait here was resumed, because another server has queued it")
		}
	}
	lost := h.queue("default")
	q.forget.Store(false)
	h.becomes(lost.ID(), toolcrib.StatusCompleted)
}

// forgetful is a queue that loses what is put in.
type forgetful struct {
	queue.Queue
	forget atomic.Bool
}

func (q *forgetful) Put(ctx context.Context, run toolcrib.RunID) (bool, error) {
	if q.forget.Load() {
		return true, nil
	}
	return q.Queue.Put(ctx, run)
}

// A run that was woken over a bound waits for its place; a new run is refused. A parked run has no place.
func TestPool_Bounds(t *testing.T) {
	h, swept := sweptPool(t, "server: {max_runs_per_user: 1}\n")
	var parked []toolcrib.RunID
	for range 2 {
		d := h.start("asks")
		if err := d.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.becomes(d.ID(), toolcrib.StatusWaitingForApproval)
		parked = append(parked, d.ID())
	}
	h.write("slow.script", "- {text: never, delay: 10m}\n")
	first := h.start("slow")
	waittest.Until(t, "two workers, with the one that waits for the queue", func() bool { return h.pool.Workers() == 2 })
	if _, err := h.pool.Start(t.Context(), ann,
		h.request("default")); toolcrib.CodeOf(err) != toolcrib.CodeCapacityExceeded {
		t.Errorf("a second run: %v", err)
	}
	for _, run := range parked {
		h.decide(run)
		h.pool.Wake(run)
	}
	swept()
	for _, run := range parked {
		if rec := h.record(run); rec.Status != toolcrib.StatusQueued {
			t.Errorf("over the bound %s is %s", run, rec.Status)
		}
	}
	if _, err := h.pool.Cancel(t.Context(), ann, string(first.ID())); err != nil {
		t.Fatal(err)
	}
	for _, run := range parked {
		h.becomes(run, toolcrib.StatusCompleted)
	}
}

func (h *poolHouse) decide(run toolcrib.RunID) {
	h.t.Helper()
	root := toolcrib.Principal{User: "local:root", Admin: true}
	rec := h.record(run)
	v, err := h.s.Approval(h.t.Context(), root, rec.Pending.ApprovalID)
	if err == nil {
		_, err = h.s.Decide(h.t.Context(), root, v, service.Decision{
			CallDecision: journal.CallDecision{Decision: journal.DecisionApprove}, Digest: v.Digest,
		})
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// A run that waits for its provider asks again when its time has come. An expired approval is denied, and the run
// continues. Neither needs a person.
func TestPool_TimeHasCome(t *testing.T) {
	h := newHouse(t, "approvals: {expire: 1h}\n")
	var clock *ahead
	h.wrap = func(s store.Store) store.Store {
		clock = &ahead{Store: s}
		return clock
	}
	h.s, h.pool = h.open(time.Minute, nil)
	fails, asks := h.start("fails"), h.start("asks")
	for _, d := range []*worker.Drive{fails, asks} {
		if err := d.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	h.becomes(fails.ID(), toolcrib.StatusWaitingForProvider)
	h.becomes(asks.ID(), toolcrib.StatusWaitingForApproval)
	h.write("fails.script", "- {text: never}\n- {text: back}\n")
	for _, c := range []struct {
		at   time.Duration
		want []toolcrib.Status
	}{
		{30 * time.Second, []toolcrib.Status{toolcrib.StatusWaitingForProvider, toolcrib.StatusWaitingForApproval}},
		{61 * time.Second, []toolcrib.Status{toolcrib.StatusCompleted, toolcrib.StatusWaitingForApproval}},
	} {
		clock.by.Store(int64(c.at))
		was := clock.swept.Load()
		waittest.Until(t, "the pool looks for runs whose time has come", func() bool { return clock.swept.Load() > was+1 })
		for _, d := range []*worker.Drive{fails, asks} { // as does a message that comes twice, or is forged
			before := h.takenUp(d.ID())
			h.pool.Carry(d.ID())
			if h.takenUp(d.ID()) != before && h.record(d.ID()).Status != toolcrib.StatusCompleted {
				t.Errorf("run %s was taken up %v after it began to wait", d.ID(), c.at)
			}
		}
		h.becomes(fails.ID(), c.want[0])
		h.becomes(asks.ID(), c.want[1])
	}
	h.s.Env.Config.Approvals.Expire = config.Duration(time.Millisecond)
	h.becomes(asks.ID(), toolcrib.StatusCompleted)
}

// ahead is a store whose runs have waited for longer.
type ahead struct {
	store.Store
	by    atomic.Int64
	swept atomic.Int32
}

func (s *ahead) Runs(ctx context.Context, f store.Filter) (store.Page, error) {
	if !f.Retry.IsZero() {
		s.swept.Add(1)
		f.Retry = f.Retry.Add(time.Duration(s.by.Load()))
	}
	return s.Store.Runs(ctx, f)
}

func (s *ahead) Run(ctx context.Context, run toolcrib.RunID) (store.RunRecord, error) {
	rec, err := s.Store.Run(ctx, run)
	if !rec.WaitsSince.IsZero() {
		rec.WaitsSince = rec.WaitsSince.Add(-time.Duration(s.by.Load()))
	}
	return rec, err
}

// A run in the middle of a run tree that can continue wakes the one at the top, and waits as long as that does.
func TestPool_FreedInTheMiddle(t *testing.T) {
	h, swept := sweptPool(t, "")
	spawn := func(agent string) string {
		return "- tool_calls: [{name: spawn, arguments: {agent: " + agent + ", task: Write.}}]\n- {text: done}\n"
	}
	h.write("slow.script", spawn("fails"))
	h.write("fails.script", spawn("asks"))
	d := h.start("slow")
	if err := d.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.pool.Delay(d.ID(), time.Hour)
	leaf := h.record(h.record(d.ID()).Pending.Run).ID
	if _, err := h.s.Cancel(t.Context(), ann, string(leaf)); err != nil {
		t.Fatal(err)
	}
	before := h.takenUp(d.ID())
	if err := h.pool.QueueDue(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	swept()
	if now := h.takenUp(d.ID()); now != before {
		t.Errorf("the run was taken up %d times, though it is to wait", now-before)
	}
	h.pool.Delay(d.ID(), 0)
	h.becomes(d.ID(), toolcrib.StatusCompleted)
}

// A reader who follows a run until it parks continues to follow it if the approval that a run below waited for was
// decided, even if no worker has it yet.
func TestPool_FollowedWhenDecidedBelow(t *testing.T) {
	h := poolOn(t, "", time.Minute, nil)
	h.write("slow.script", "- tool_calls: [{name: spawn, arguments: {agent: asks, task: Write.}}]\n- {text: done}\n")
	d := h.start("slow")
	if err := d.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-d.Over()
	ended := ""
	follow := func() error {
		q := worker.Follow{Run: string(d.ID()), Parks: true}
		return h.pool.Follow(t.Context(), ann, q, func(f journal.Frame) error { ended = f.Event; return nil })
	}
	if err := follow(); err != nil || ended != string(journal.KindPaused) {
		t.Errorf("before the decision, it ends with %s, error %v", ended, err)
	}
	h.pool.Delay(d.ID(), time.Hour) // no worker takes it
	h.decide(h.record(d.ID()).Pending.Run)
	over := make(chan error)
	go func() { over <- follow() }()
	select {
	case err := <-over:
		t.Fatalf("the stream ends with %s, error %v, though the run continues", ended, err)
	case <-time.After(200 * time.Millisecond):
	}
	h.pool.Delay(d.ID(), 0)
	if err := <-over; err != nil || ended != string(journal.KindDone) {
		t.Errorf("after the decision, it ends with %s, error %v", ended, err)
	}
}

// The reader does not, if the run at the top waits for a person, because no worker continues it.
func TestPool_FollowedBelowOneThatWaits(t *testing.T) {
	h := poolOn(t, "", time.Minute, nil)
	h.write("quick.script", "- tool_calls: [{name: spawn, arguments: {agent: slow, task: Write.}}, "+
		"{name: ask_user, arguments: {question: Well?}}]\n- {text: done}\n")
	h.write("slow.script", "- tool_calls: [{name: spawn, arguments: {agent: asks, task: Write.}}]\n- {text: done}\n")
	d := h.start("default")
	if err := d.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-d.Over()
	page, err := h.s.Env.Store.Runs(t.Context(), store.Filter{Parent: d.ID(), Limit: 1})
	if err != nil || len(page.Runs) != 1 {
		t.Fatal(page, err)
	}
	middle := page.Runs[0].ID
	h.decide(h.record(middle).Pending.Run)
	ended := ""
	err = h.pool.Follow(t.Context(), ann, worker.Follow{Run: string(middle), Parks: true}, func(f journal.Frame) error {
		ended = f.Event
		return nil
	})
	if err != nil || ended != string(journal.KindPaused) {
		t.Errorf("it ends with %s, error %v", ended, err)
	}
}

// If one of the additions of a request is refused, nothing is added to any run, so that the request can be repeated.
func TestPool_ResumeRefused(t *testing.T) {
	h := poolOn(t, `  boss: {model: dear, budget: {max_cost_usd: 1}}
  short: {model: dear2, limits: {max_iterations: 1, on_limit: ask}}
models:
  dear: {provider: slow, model: x, price: {input: 1, output: 1}}
  dear2: {provider: fails, model: x, price: {input: 1, output: 1}}
`, time.Minute, nil)
	h.write("slow.script", "- tool_calls: [{name: spawn, arguments: {agent: short, task: Look.}}]\n- {text: done}\n")
	h.write("fails.script", "- tool_calls: [{name: list_directory, arguments: {path: .}}]\n- {text: looked}\n")
	d := h.start("boss")
	if err := d.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	below := h.record(d.ID()).Pending.Run
	seq := []toolcrib.Seq{h.record(d.ID()).LastSeq, h.record(below).LastSeq}
	q := service.ResumeRequest{Run: string(d.ID()), Model: "quick/x", Message: "Go.", Add: journal.Granted{Iterations: 2}}
	_, err := h.pool.Resume(t.Context(), ann, q)
	if toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
		t.Errorf("a model without a price: %v", err)
	}
	if now := []toolcrib.Seq{h.record(d.ID()).LastSeq, h.record(below).LastSeq}; !slices.Equal(now, seq) {
		t.Errorf("something was added: %v, then %v", seq, now)
	}
	q.Model = ""
	if _, err = h.pool.Resume(t.Context(), ann, q); err != nil {
		t.Fatal(err)
	}
	h.becomes(d.ID(), toolcrib.StatusCompleted)
}

// A limit that was raised is not forgotten if the server ends before the run continues.
func TestPool_RaisedAndLost(t *testing.T) {
	h := poolOn(t, `  boss: {model: slow/x}
  short: {model: fails/x, limits: {max_iterations: 1, on_limit: ask}}
`, time.Minute, nil)
	var ends atomic.Bool // before a worker has taken a run up
	h.s.Env.Observe = func(j toolcrib.Journal) toolcrib.Journal {
		return &heard{Journal: j, hear: func(_ toolcrib.RunID, events []toolcrib.Event) error {
			if ends.Load() && events[0].Body.EventKind() == journal.KindTakenUp {
				return errors.New("the server has ended")
			}
			return nil
		}}
	}
	h.write("slow.script", "- tool_calls: [{name: spawn, arguments: {agent: short, task: Look.}}]\n- {text: done}\n")
	h.write("fails.script", "- tool_calls: [{name: list_directory, arguments: {path: .}}]\n- {text: looked}\n")
	drives := []*worker.Drive{h.start("short"), h.start("boss")}
	for _, d := range drives {
		if err := d.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-d.Over()
	}
	ends.Store(true)
	for _, d := range drives {
		r := service.ResumeRequest{Run: string(d.ID()), Add: journal.Granted{Iterations: 2}}
		before := h.record(d.ID()).LastSeq
		_, _ = h.pool.Resume(t.Context(), ann, r) // the worker may have failed already
		if rec := h.record(d.ID()); rec.LastSeq > before+1 {
			t.Fatalf("the run is %s and has %d more events, want one at most, which raises its limit", rec.Status, rec.LastSeq-before)
		}
	}
	if err := h.pool.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.s.Drivers.Close()
	h.s, h.pool = h.open(time.Minute, nil)
	for _, d := range drives {
		h.becomes(d.ID(), toolcrib.StatusCompleted)
	}
}

// Two processes share a folder. Each drives the runs that it started, and takes up the runs that the other leaves. No
// run is driven twice.
func TestPool_TwoProcesses(t *testing.T) {
	h := poolOn(t, "", time.Minute, nil)
	swept := h.sweeping()
	theirs, other := h.open(time.Minute, nil)
	h.write("slow.script", "- {text: never, delay: 10m}\n")
	d := h.start("slow")
	swept()
	if n := h.takenUp(d.ID()); n != 1 {
		t.Errorf("the run was taken up %d times", n)
	}
	if _, err := other.Resume(t.Context(), ann,
		service.ResumeRequest{Run: string(d.ID())}); toolcrib.CodeOf(err) != toolcrib.CodeConflict {
		t.Errorf("resumed elsewhere: %v", err)
	}
	h.write("slow.script", "- {text: slowly}\n")
	if err := h.pool.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.s.Drivers.Close()
	start := time.Now()
	h.s, h.pool = theirs, other
	h.becomes(d.ID(), toolcrib.StatusCompleted)
	if n := h.takenUp(d.ID()); n > 2 {
		t.Errorf("the run was taken up %d times", n)
	}
	t.Logf("taken over and done after %v", time.Since(start))
}

// A server works on server.max_runs runs at most.
func TestPool_MaxRuns(t *testing.T) {
	h := poolOn(t, "server: {max_runs: 16}\n", time.Minute, nil)
	var all []*worker.Drive
	for range 16 {
		d, err := h.pool.Reserve("", "")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	if _, err := h.pool.Reserve("", ""); toolcrib.CodeOf(err) != toolcrib.CodeCapacityExceeded {
		t.Errorf("one more run: %v", err)
	}
	for _, d := range all {
		d.Release(nil)
	}
	if d, err := h.pool.Reserve("", ""); err != nil {
		t.Errorf("after the others: %v", err)
	} else {
		d.Release(nil)
	}
}

// A request with the key of a run gets that run, in another process as well, and whatever the bounds. A different
// request with the key is a conflict.
func TestPool_Once(t *testing.T) {
	h := poolOn(t, "server: {max_runs_per_user: 1}\n", time.Minute, nil)
	r := h.request("slow")
	r.Once = service.Once(ann, "key", "POST", "Go.")
	d, err := h.pool.Start(t.Context(), ann, r)
	if err != nil {
		t.Fatal(err)
	}
	_, other := h.open(time.Minute, nil)
	for _, p := range []*service.Pool{h.pool, other} {
		again, err := p.Start(t.Context(), ann, r)
		if err != nil || again.ID() != d.ID() {
			t.Fatalf("%v, %v, want %s", again, err, d.ID())
		}
		if err := again.Wait(t.Context()); err != nil || h.record(d.ID()).Status != toolcrib.StatusCompleted {
			t.Errorf("%v, %s", err, h.record(d.ID()).Status)
		}
	}
	r.Once = service.Once(ann, "key", "POST", "Stop.")
	if _, err := other.Start(t.Context(), ann, r); toolcrib.CodeOf(err) != toolcrib.CodeConflict {
		t.Errorf("the key with another request: %v", err)
	}
	bob := service.Once(toolcrib.Principal{User: "bob"}, "key", "POST", "Go.")
	if none := service.Once(ann, "", "POST"); none != "" || bob == service.Once(ann, "key", "POST", "Go.") {
		t.Errorf("%q, %q", none, bob)
	}
}

// A run without a worker is cancelled at once; one that has a worker ends with it.
func TestPool_Cancel(t *testing.T) {
	q := &forgetful{}
	h := poolOn(t, "", time.Minute, func(inner queue.Queue) queue.Queue { q.Queue = inner; return q })
	for _, queued := range []bool{false, true} {
		q.forget.Store(queued)
		h.write("slow.script", "- {text: never, delay: 10m}\n")
		begin := h.start
		if queued {
			begin = h.queue
		}
		d := begin("slow")
		start := time.Now()
		run, err := h.pool.Cancel(t.Context(), ann, string(d.ID()))
		if err != nil || run.Status != toolcrib.StatusCancelled || time.Since(start) > patience {
			t.Errorf("queued %v: %s, %v after %v", queued, run.Status, err, time.Since(start))
		}
		if err := d.Wait(t.Context()); queued && err != nil {
			t.Error(err)
		}
	}
}

// A parked run holds no place in the pool, no drive and no connection to its provider. All runs share one adapter for a
// provider, so that its limits apply to all of them together.
func TestPool_ParkedRunsHoldNothing(t *testing.T) {
	var connections, at, most atomic.Int32
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), at.Add(1)))
		defer at.Add(-1)
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, rest := range []string{
			`"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"write_file","arguments":` +
				`"{\"path\":\"a\",\"content\":\"b\"}"}}]}`, `"delta":{},"finish_reason":"tool_calls"`,
		} {
			_, _ = fmt.Fprintf(w, "data: {\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,%s}]}\n\n", rest)
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	api.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	api.Start()
	defer api.Close()
	t.Setenv("POOL_TEST_API", api.URL)
	h := poolOn(t, "", 0, nil)
	const runs = 16
	drives, ids := make([]weak.Pointer[worker.Drive], runs), make([]toolcrib.RunID, runs)
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() {
			d, err := h.pool.Start(t.Context(), ann, h.request("remote"))
			if err == nil {
				err = d.Wait(t.Context())
			}
			if err != nil {
				t.Error(err)
				return
			}
			drives[i], ids[i] = weak.Make(d), d.ID()
		})
	}
	all.Wait()
	for _, run := range ids {
		h.becomes(run, toolcrib.StatusWaitingForApproval)
	}
	if n := most.Load(); n != 1 {
		t.Errorf("%d requests at a time, although max_concurrent is 1", n)
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections to the provider, want 1 for all runs", n)
	}
	if a, b, _, _ := h.pool.Held(); a+b != 0 {
		t.Errorf("the pool holds %d drives, %d runs", a, b)
	}
	held := func(d weak.Pointer[worker.Drive]) bool { return d.Value() != nil }
	waittest.Until(t, "nothing holds the drive of a run that waits", func() bool {
		runtime.GC()
		return !slices.ContainsFunc(drives, held)
	})
}

// Live frames that are sent while a reader reads the kept events do not follow the reply that they belong to.
func TestPool_FollowedWhileItSpeaks(t *testing.T) {
	h := poolOn(t, "", 0, nil)
	d, err := h.pool.Start(t.Context(), ann, h.request("asks"))
	if err == nil {
		err = d.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	<-d.Over() // it has sent the end of the drive
	token := func(text string) {
		h.pool.Send(d.ID(), journal.Frame{Event: journal.FrameToken, Data: journal.TextView{Text: text}})
	}
	h.pool.Redrive(d, 0)
	var last toolcrib.Seq
	said := ""
	err = h.pool.Follow(t.Context(), ann, worker.Follow{Run: string(d.ID()), Parks: true}, func(f journal.Frame) error {
		if last == 0 { // the first frame in the store
			h.pool.Redrive(d, 1)
			token("before the reply")
		}
		if last = max(last, f.Seq); f.Event == string(journal.KindPaused) {
			h.pool.Redrive(d, last)
			token("after it")
			h.pool.EndRedrive(d)
		}
		if f.Event == journal.FrameToken {
			said += f.Data.(journal.TextView).Text
		}
		return nil
	})
	if err != nil || said != "after it" {
		t.Errorf("%q, error %v", said, err)
	}
}

// A message from another process is read, although the driver looks for messages only now and then: the store does not
// end a run that has one.
func TestPool_MessageOfAnotherProcess(t *testing.T) {
	h := poolOn(t, "", time.Second, nil)
	h.write("slow.script", "- {text: one, delay: 100ms}\n- {text: heard}\n")
	other, _ := h.open(time.Second, nil)
	for range 20 {
		d := h.start("slow")
		if err := other.Say(t.Context(), ann, string(d.ID()), "Listen."); toolcrib.CodeOf(err) == toolcrib.CodeConflict {
			continue // the run ended first
		} else if err != nil {
			t.Fatal(err)
		}
		run, err := h.pool.Outcome(t.Context(), ann, d)
		if err != nil || run.Content != "heard" {
			t.Errorf("%q, %v", run.Content, err)
		}
		return
	}
	t.Fatal("every run ended before the message came")
}
