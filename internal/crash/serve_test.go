//go:build unix

package crash

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/client"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/process"
	"github.com/toolcrib/toolcrib/internal/relaytest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/server"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

var towns = flag.Int("crash.towns", 1, "how many stories of several servers and their clients")

// The crash test of a server. Several processes serve one data folder, with a short lease, and die or
// stop while clients start runs, watch them, approve calls, carry out others and say something. A
// client asks whichever process is there. The model and the tool with effects are in this process, so
// that it knows what has happened.

// houseEnv makes a program play a server: an order as JSON.
const houseEnv = "TOOLCRIB_CRASH_HOUSE"

// houseLease is how long a server keeps its runs without renewing their leases.
const houseLease = 1500 * time.Millisecond

// houseOrder is on what a process serves, and at which of its appends it dies.
type houseOrder struct {
	Dir   string
	At    string        // append/3/before, append/3/during or append/3/after; "" = it lives
	Delay time.Duration // with during
	Trace string        // file for the points that it passes; "" = none
	Lease time.Duration // 0 = houseLease
}

// playHouse plays a server, if the program was started as one; then it does not return.
func playHouse() { play(houseEnv, (*houseOrder).serve) }

func (o *houseOrder) serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := houseService(o.Dir, cmp.Or(o.Lease, houseLease))
	if err != nil {
		return err
	}
	trace, err := os.OpenFile(cmp.Or(o.Trace, os.DevNull), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer trace.Close() //nolint:errcheck // each line was written
	d := &dead{at: o.At, delay: o.Delay, trace: trace}
	s.Env.Observe = func(j toolcrib.Journal) toolcrib.Journal { return &mortal{j, d} }
	err = s.Env.Open(ctx)
	for end := time.Now().Add(time.Minute); errors.Is(err, store.ErrUnreachable) && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond) // as a supervisor would restart them
		err = s.Env.Open(ctx)
	}
	if err != nil {
		return err
	}
	h, err := server.New(server.Options{Service: s, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Version: "test"})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return errors.Join(h.Serve(ctx, l, "", ""), s.Close())
}

func houseService(dir string, lease time.Duration) (*service.Service, error) {
	c, err := config.Load(config.Source{Path: filepath.Join(dir, "toolcrib.yaml"), Origin: config.OriginFlag}, nil)
	if err != nil {
		return nil, err
	}
	return service.New(env.Options{
		Config: c, DataDir: filepath.Join(dir, "data"), Driver: env.DriverServer, Lease: lease,
		NoSandbox: func() string { return "" },
	}), nil
}

// mortal is a journal whose process dies at an append.
type mortal struct {
	toolcrib.Journal
	*dead
}

func (j *mortal) Append(ctx context.Context, run toolcrib.RunID, after toolcrib.Seq, events ...toolcrib.Event) error {
	return j.around(j.label("append"), events, func() error { return j.Journal.Append(ctx, run, after, events...) })
}

// town is several servers on one data folder, and what they reach.
type town struct {
	t       *testing.T
	dir     string
	exe     string
	log     *os.File
	patient context.Context

	mu      sync.Mutex
	r       *rand.Rand
	live    []*house
	news    chan struct{} // is closed when there is another house
	effects map[string]int
	sending int // requests to the model at the same time, and the most of them
	most    int
	asked   map[string]int // requests of runs to the model, by key and turn
	hold    func(key string, turn int) <-chan struct{}
	orders  []*houseOrder // of the next houses; then they live
	closed  bool
	opened  int
	visited int // runs of clients that have ended
	lost    int // those of them that were given up
	apart   int // how often a server has taken up a child run while another one had its parent
	ops     int
	plan    map[int]string // what becomes of a house at an operation of a client
	sites   []*site        // of the houses; if empty, they need none
	houses  sync.WaitGroup

	happened func(arguments json.RawMessage) bool // whether a call has had its effect; nil = what effects says of its ID
	pass     func(label string)                   // is called around each effect; may be nil
	saw      func(client.Event)                   // is called for each event that a client sees; may be nil
	failures []string
}

// townRequests is how many requests a run of a town may send, with those below it.
const townRequests = 40

// house is one server.
type house struct {
	cmd     *exec.Cmd
	address string
	ended   chan struct{}
	told    bool // to end
	stopped bool
	site    *site // nil = none
}

// site is a machine for one server at a time: its connections go through relays.
type site struct {
	clients       *relaytest.Relay
	database, bus []*relaytest.Relay
	env           []string // of the server
	taken         bool
}

func newTown(t *testing.T, seed uint64) *town { return newTownIn(t, t.TempDir(), seed, townOptions{}) }

// townOptions are further parts of the configuration.
type townOptions struct {
	limits, bus string             // limits of the provider; address of the bus
	database    string             // address; "" = SQLite in the folder data
	most        time.Duration      // how long clients begin runs
	text        func(*town) string // returns the configuration; nil = that of servers that do all themselves
}

// accepting is held by who writes the record of accepted servers, which all towns share: many at the same time wait for
// its file longer than a program does.
var accepting sync.Mutex

// newTownIn makes a town in a folder.
func newTownIn(t *testing.T, dir string, seed uint64, o townOptions) *town {
	h := harness(t)
	w := &town{
		t: t, dir: dir, exe: h.Exe, r: rand.New(rand.NewPCG(seed, 1)), news: make(chan struct{}), effects: map[string]int{},
		asked: map[string]int{}, plan: map[int]string{},
	}
	var cancel context.CancelFunc
	w.patient, cancel = context.WithTimeout(t.Context(), 8*time.Minute+o.most)
	t.Cleanup(cancel)
	text := ""
	if o.text != nil {
		text = o.text(w)
	} else {
		text = w.text(o)
	}
	if err := os.WriteFile(filepath.Join(w.dir, "toolcrib.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	err := w.alone(func(s *service.Service) error {
		if len(s.Env.Config.MCPServers) == 0 {
			return nil
		}
		accepting.Lock()
		defer accepting.Unlock()
		r, err := s.MCP.Review(t.Context(), mayor, "town")
		if err != nil {
			return err
		}
		return s.MCP.Accept(t.Context(), mayor, r, r.Digest)
	})
	if err != nil {
		t.Fatal(err)
	}
	if w.log, err = os.Create(filepath.Join(w.dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.end()
		if text, err := os.ReadFile(w.log.Name()); err == nil && t.Failed() {
			t.Logf("what the servers logged:\n%s", text)
		}
		for _, problem := range w.failures { // once more, below a long log
			t.Log(problem)
		}
		_ = w.log.Close()
	})
	return w
}

// fail fails the test.
func (w *town) fail(problem string) {
	w.t.Error(problem)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = append(w.failures, problem)
}

// text returns the configuration of servers that do all themselves.
func (w *town) text(o townOptions) string {
	return fmt.Sprintf(`
providers: {town: {type: openai, api_key: none, base_url: '%s'%s}}
bus: {url: '%s'}
database: '%s'
agents: {default: {model: town/m, budget: {max_requests: %d}}, helper: {model: town/m}}
mcpServers: {town: {url: '%s', trusted: true}}
tools: {confirm: writes}
server: {auth: none}
`, listen(w.t, http.HandlerFunc(w.model)), o.limits, o.bus, o.database, townRequests, listen(w.t, w.tools()))
}

// mayor is an administrator of a town.
var mayor = toolcrib.Principal{User: person, Admin: true}

// alone does something with the data of a town while it has no server.
func (w *town) alone(do func(*service.Service) error) error {
	s, err := houseService(w.dir, houseLease)
	if err != nil {
		return err
	}
	if err = s.Env.Open(context.WithoutCancel(w.patient)); err == nil {
		err = do(s)
	}
	return errors.Join(err, s.Close())
}

func listen(t *testing.T, h http.Handler) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return "http://" + l.Addr().String()
}

// open starts a server and returns when it listens.
func (w *town) open() *house {
	w.mu.Lock()
	w.opened++
	o := &houseOrder{}
	if len(w.orders) > 0 {
		o, w.orders = w.orders[0], w.orders[1:]
	}
	w.mu.Unlock()
	o.Dir = w.dir
	text, err := json.Marshal(o)
	if err != nil {
		w.fail(err.Error())
		return nil
	}
	h := &house{cmd: exec.Command(w.exe), ended: make(chan struct{}), site: w.free()}
	h.cmd.Env = append(os.Environ(), houseEnv+"="+string(text))
	if h.site != nil {
		h.cmd.Env = append(h.cmd.Env, h.site.env...)
	}
	h.cmd.Stderr = w.log
	out, err := h.cmd.StdoutPipe()
	if err == nil {
		err = h.cmd.Start()
	}
	if err != nil {
		w.fail(err.Error())
		return nil
	}
	line, _ := bufio.NewReader(out).ReadString('\n') // empty if it dies before
	h.address = strings.TrimSpace(line)
	if h.site != nil && h.address != "" {
		h.site.clients.To(h.address)
		h.address = h.site.clients.Address()
	}
	w.mu.Lock()
	if h.address != "" {
		w.live = append(w.live, h)
	}
	close(w.news)
	w.news = make(chan struct{})
	if w.closed {
		h.end()
	}
	w.mu.Unlock()
	w.houses.Go(func() { w.attend(h) })
	return h
}

// free takes a site that is not taken, if houses need one.
func (w *town) free() *site {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sites {
		if !s.taken {
			s.taken = true
			return s
		}
	}
	return nil
}

// attend waits for the end of a server, and opens another one in its place.
func (w *town) attend(h *house) {
	err := h.cmd.Wait()
	close(h.ended)
	w.mu.Lock()
	w.live = slices.DeleteFunc(w.live, func(other *house) bool { return other == h })
	told, closed := h.told, w.closed
	if h.site != nil {
		h.site.taken = false
	}
	w.mu.Unlock()
	switch {
	case told && err != nil:
		w.fail("a server that was told to end: " + err.Error())
	case !told && !killed(h.cmd.ProcessState):
		w.fail(fmt.Sprintf("a server ended by itself: %v", err))
	}
	if !closed {
		w.open()
	}
}

// end stops all servers, and waits for them.
func (w *town) end() {
	w.mu.Lock()
	w.closed = true
	for _, h := range w.live {
		h.end()
	}
	w.mu.Unlock()
	w.houses.Wait()
}

// end stops the server. The town is locked.
func (h *house) end() {
	h.told = true
	_ = h.cmd.Process.Signal(syscall.SIGCONT)
	_ = h.cmd.Process.Signal(syscall.SIGTERM)
}

// RoundTrip implements [http.RoundTripper]: a request goes to any server that is there.
func (w *town) RoundTrip(q *http.Request) (*http.Response, error) {
	for {
		w.mu.Lock()
		at, news := slices.DeleteFunc(slices.Clone(w.live), func(h *house) bool { return h.stopped }), w.news
		var h *house
		if len(at) > 0 {
			h = at[w.r.IntN(len(at))]
		}
		w.mu.Unlock()
		if h != nil {
			sent := q.Clone(q.Context())
			sent.URL.Host, sent.Host = h.address, h.address
			return http.DefaultTransport.RoundTrip(sent)
		}
		select {
		case <-news:
		case <-q.Context().Done():
			return nil, q.Context().Err()
		}
	}
}

// operation is called before a client does something, and at each event that it sees.
func (w *town) operation() {
	w.mu.Lock()
	w.ops++
	what := w.plan[w.ops]
	var h *house
	if what != "" && len(w.live) > 0 {
		h = w.live[w.r.IntN(len(w.live))]
	}
	pause := time.Duration(w.r.IntN(5000)) * time.Microsecond
	long := time.Duration(1+w.r.IntN(4)) * houseLease
	w.mu.Unlock()
	if h == nil {
		return
	}
	w.houses.Go(func() {
		time.Sleep(pause)
		if what == "kill" {
			_ = h.cmd.Process.Kill()
			return
		}
		w.sleep(h, long)
	})
}

// sleep stops a server for a while.
func (w *town) sleep(h *house, long time.Duration) {
	w.stop(h)
	select {
	case <-time.After(long):
	case <-h.ended:
	}
	w.resume(h)
}

func (w *town) stop(h *house) {
	w.mu.Lock()
	h.stopped = true
	w.mu.Unlock()
	_ = h.cmd.Process.Signal(syscall.SIGSTOP)
}

func (w *town) resume(h *house) {
	w.mu.Lock()
	h.stopped = false
	close(w.news)
	w.news = make(chan struct{})
	w.mu.Unlock()
	_ = h.cmd.Process.Signal(syscall.SIGCONT)
}

// verify looks into the journals, when no server is left, and compares each run with what has happened.
func (w *town) verify() []string {
	return w.inspect(&Scenario{}, func(s *Story, run *agent.State) { w.checkEffects(s, run) })
}

// inspect looks into the journals, when no server is left, and calls each for the runs.
func (w *town) inspect(sc *Scenario, each func(*Story, *agent.State)) (problems []string) {
	err := w.alone(func(s *service.Service) error {
		var err error
		problems, err = w.inspectIn(context.WithoutCancel(w.patient), s.Env.Store, sc, each)
		return err
	})
	if err != nil {
		problems = append(problems, err.Error())
	}
	return problems
}

func (w *town) inspectIn(
	ctx context.Context, st store.Store, sc *Scenario, each func(*Story, *agent.State),
) (problems []string, err error) {
	if _, err := st.VerifyAll(ctx); err != nil {
		problems = append(problems, fmt.Sprintf("verify of all: %v", err))
	}
	now := &scene{runs: map[toolcrib.RunID]*agent.State{}}
	for q := (store.Filter{Limit: store.MaxLimit}); ; {
		page, err := st.Runs(ctx, q)
		if err != nil {
			return problems, err
		}
		for _, rec := range page.Runs {
			if now.runs[rec.ID], err = agent.Load(ctx, st, rec.ID); err != nil {
				return problems, err
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	whole := &Story{}
	whole.tree(now)
	sum := int64(0)
	for _, run := range now.runs {
		sum += int64(run.Usage.Requests)
	}
	rows, err := st.Usage(ctx, store.UsageQuery{By: store.UsageTotal})
	for _, row := range rows {
		sum -= row.Requests
	}
	if err != nil || sum != 0 {
		whole.problemf("the usage is %+v, and that of the runs has %d requests more: %v", rows, sum, err)
	}
	problems = append(problems, whole.Problems...)
	drivers := map[toolcrib.RunID][]toolcrib.Event{} // how they were taken up; parents come first
	for _, run := range now.all() {
		s := &Story{Scenario: sc}
		events, err := s.checkRun(ctx, st, run)
		if err != nil {
			s.problemf("%v", err)
		}
		s.kin(run, events, now)
		each(s, run)
		for _, e := range events {
			b, ok := e.Body.(*journal.TakenUp)
			if !ok {
				continue
			}
			drivers[run.Run] = append(drivers[run.Run], e)
			above := ""
			for _, p := range drivers[run.Start.Parent] {
				if !p.Time.After(e.Time) {
					above = p.Body.(*journal.TakenUp).Worker
				}
			}
			if above != "" && above != b.Worker {
				w.apart++
			}
		}
		if len(s.Problems) > 0 {
			problems = append(append(problems, s.Problems...), story(events))
		}
	}
	return problems, nil
}

// checkEffects compares a run with what has reached the tool and the model.
func (w *town) checkEffects(s *Story, run *agent.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range run.Trace {
		if n := w.effects[c.ID]; c.Name == "town__ring" && n != 1 && (n > 1 || c.Result != nil && c.Result.Status == toolcrib.ResultOK) {
			s.problemf("call %s had its effect %d times", c.ID, n)
		}
	}
	sent, key := 0, keyOf(run.Start.Input[len(run.Start.Input)-1].Text())
	for turn := range run.Iterations + 1 {
		sent += w.asked[fmt.Sprint(key, "/", turn)]
	}
	if sent > run.Usage.Requests || key == "" {
		s.problemf("%q: %d requests reached the model, and %d were counted", key, sent, run.Usage.Requests)
	}
	s.within("the budget", run.Spent(), toolcrib.Budget{MaxRequests: townRequests})
}

// visits are clients at the same time, each with a run after another until they have worked for so long; it
// returns what is wrong.
func (w *town) visits(n int, long time.Duration) (problems []string) {
	var all sync.WaitGroup
	var mu sync.Mutex
	began := time.Now()
	for i := range n {
		all.Go(func() {
			for key, k := fmt.Sprint("visit-", i), 1; k == 1 || time.Since(began) < long; k++ {
				found := w.attended(key)
				key = fmt.Sprint("visit-", i, "-", k)
				mu.Lock()
				w.visited++
				problems = append(problems, found...)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return problems
}

// attended is one visit; it returns what is wrong.
func (w *town) attended(key string) (problems []string) {
	v, err := w.visit(key)
	if err == nil {
		err = v.begin()
	}
	var run api.Run
	if err == nil {
		run, err = v.stay()
	}
	if err != nil {
		return []string{fmt.Sprintf("%s (%s): %v", v.key, v.run, err)}
	}
	problems = v.check(run)
	v.seen = append(v.seen, v.seen[0])
	if len(v.check(run)) == len(problems) {
		problems = append(problems, "an event that came twice was not noticed")
	}
	return problems
}

// TestServe_Sample has servers die and stop at moments that the seed says, while clients work with them.
// Each run ends as it does without that, each effect happens once, and each stream is whole.
func TestServe_Sample(t *testing.T) {
	t.Parallel()
	first := theSeed(t)
	for i := range *towns {
		t.Run(fmt.Sprint("seed=", first+uint64(i)), func(t *testing.T) { newTown(t, first+uint64(i)).sample(2) })
	}
}

// sample tells the story of a seed, with n servers at a time.
func (w *town) sample(n int) {
	for range 2 + w.r.IntN(4) {
		at := fmt.Sprintf("append/%d/%s", 1+w.r.Int64N(40), []string{"before", "during", "after"}[w.r.IntN(3)])
		w.orders = append(w.orders, &houseOrder{At: at, Delay: time.Duration(w.r.IntN(3000)) * time.Microsecond})
	}
	for range 1 + w.r.IntN(2) {
		w.plan[1+w.r.IntN(150)] = "kill"
	}
	w.plan[1+w.r.IntN(150)] = "stop"
	for range n {
		w.open()
	}
	began := time.Now()
	problems := w.visits(4, 0)
	w.end()
	problems = append(problems, w.verify()...)
	if len(problems) > 0 {
		w.fail(fmt.Sprintf("orders %+v, plan %v:\n    %s", w.orders, w.plan, strings.Join(problems, "\n    ")))
	}
	w.t.Logf("%d servers, %d operations, %s", w.opened, w.ops, time.Since(began).Round(time.Millisecond))
}

// A run of a server that was killed is continued by another one on the same machine at its next look, not only when its
// lease has ended.
func TestServe_Killed(t *testing.T) {
	t.Parallel()
	if process.Self().Machine == "" {
		t.Skip("processes are not looked at here")
	}
	w := newTown(t, 1)
	free := make(chan struct{})
	w.hold = func(_ string, turn int) <-chan struct{} {
		if turn == 0 {
			return free
		}
		return closed
	}
	w.orders = []*houseOrder{{Lease: time.Hour}, {Lease: time.Hour}}
	killed := w.open()
	v, err := w.visit("visit-0")
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan error, 1)
	go func() { begun <- v.begin() }()
	w.eventually(func() bool { return w.asked["visit-0/0"] == 1 })
	w.open()
	began := time.Now()
	_ = killed.cmd.Process.Kill()
	w.eventually(func() bool { return w.asked["visit-0/0"] == 2 })
	t.Logf("continued after %s", time.Since(began).Round(time.Millisecond))
	close(free)
	if err := <-begun; err != nil {
		t.Fatal(err)
	}
	run, err := v.stay()
	if err != nil {
		t.Fatal(err)
	}
	problems := v.check(run)
	w.end()
	for _, p := range append(problems, w.verify()...) {
		t.Error(p)
	}
}

// A run of a server that is stopped (SIGSTOP) is continued by another one meanwhile. When the first
// continues, it leaves the run alone, and its waiting clients get the answer.
func TestServe_Hung(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	free := make(chan struct{})
	w.hold = func(_ string, turn int) <-chan struct{} {
		if turn == 0 {
			return free
		}
		return closed
	}
	hung := w.open()
	first, err := w.visit("visit-0")
	if err != nil {
		t.Fatal(err)
	}
	begun := make(chan error, 1)
	go func() { begun <- first.begin() }()
	w.eventually(func() bool { return w.asked["visit-0/0"] == 1 })
	w.open()
	w.stop(hung)
	began := time.Now()
	w.eventually(func() bool { return w.asked["visit-0/0"] == 2 })
	t.Logf("taken over after %s", time.Since(began).Round(time.Millisecond))
	close(free)
	second, err := w.visit("visit-0")
	if err != nil {
		t.Fatal(err)
	}
	err = second.insist(func() error {
		var list struct{ Runs []api.Run }
		err := second.c.Get(w.patient, client.Path("runs"), nil, &list)
		if err == nil && len(list.Runs) == 1 {
			second.run = list.Runs[0].ID
		}
		return err
	})
	if err != nil || second.run == "" {
		t.Fatal(second.run, err)
	}
	run, err := second.stay()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range second.check(run) {
		t.Error(p)
	}
	w.resume(hung)
	if err := <-begun; err != nil {
		t.Error(err)
	}
	if run, err = first.stay(); err != nil {
		t.Fatal(err)
	}
	for _, p := range first.check(run) {
		t.Error(p)
	}
	w.end()
	for _, p := range w.verify() {
		t.Error(p)
	}
}

var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// eventually waits until something is so.
func (w *town) eventually(is func() bool) {
	w.t.Helper()
	waittest.Until(w.t, "what the story waits for", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return is()
	})
}
