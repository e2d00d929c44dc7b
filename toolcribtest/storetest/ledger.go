package storetest

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// The budgets of users (N11). The room that they leave is computed by store.Spending, which has its own
// tests; the store provides spending and reservations, over all processes.

func (w *writer) reservation(run toolcrib.RunID, user string) toolcrib.Reservation {
	return toolcrib.Reservation{
		Run: run, Request: 1, User: user, Tokens: 100, Output: 40, CostUSD: 0.5,
		Price: toolcrib.Price{Input: 5000, Output: 5000, Known: true}, At: w.at,
	}
}

func (w *writer) send(run toolcrib.RunID) error {
	return w.try(run, &journal.ModelRequest{Request: 1, ReservedInput: 60, ReservedOutput: 40, ReservedUSD: 0.5})
}

func answer(used store.UseSum) *journal.Usage {
	return &journal.Usage{
		Request: 1, Tokens: toolcrib.TokenUsage{InputTokens: used.InputTokens},
		CostUSD: float64(used.NanoUSD) / 1e9,
	}
}

func ledgerOf(t *testing.T, database Database) {
	w := newWriter(t, database)
	if l, err := w.s.Ledger([]store.UserBudget{{User: "*"}, {User: "ann"}}); l != nil || err != nil {
		t.Errorf("ledger %v, error %v for no ceiling", l, err)
	}
	for _, b := range []store.UserBudget{
		{RequestsPerDay: 1},
		{User: "*", RequestsPerDay: -1},
		{User: "*", CostUSDPerMonth: math.NaN()},
	} {
		if _, err := w.s.Ledger([]store.UserBudget{b}); err == nil {
			t.Errorf("%+v is taken", b)
		}
	}
	l, err := w.s.Ledger([]store.UserBudget{{User: "ann", RequestsPerDay: 1, CostUSDPerDay: 9, Key: "budgets[0]"}})
	must(t, err)
	if ann, bob := l.CapsCost("ann"), l.CapsCost("bob"); ann != "budgets[0].cost_usd_per_day" || bob != "" {
		t.Errorf("%q and %q cap cost", ann, bob)
	}
	for i := range 3 {
		if room, err := l.Reserve(t.Context(), w.reservation(toolcrib.RunID(fmt.Sprint("run_", i)), "bob")); room != -1 ||
			err != nil {
			t.Errorf("room for %d, error %v, without a budget", room, err)
		}
	}
	if _, err := l.Reserve(t.Context(), toolcrib.Reservation{User: "ann"}); err == nil {
		t.Error("a reservation of no run at no time is made")
	}
	w.at = time.Date(2026, 2, 27, 23, 59, 0, 0, time.UTC)
	_, err = l.Reserve(t.Context(), w.reservation("run_a", "ann"))
	must(t, err)
	w.at = w.at.Add(2 * time.Minute) // the first may still be sent on this day
	if _, err := l.Reserve(t.Context(), w.reservation("run_b", "ann")); !errors.As(err, new(*toolcrib.BudgetError)) {
		t.Errorf("after midnight: error %v, want a refusal", err)
	}
}

// ledgerHandedOver tests that a reservation of one process applies when another process sends the
// request, also if that one drove the run before and has reserved nothing itself.
func ledgerHandedOver(t *testing.T, database Database) {
	w := &writer{t: t, at: noon(), after: map[toolcrib.RunID]toolcrib.Seq{}}
	open := database(t, func() time.Time { return w.at })
	one, two := open(), open()
	reserve := func(run toolcrib.RunID) error {
		l, err := w.s.Ledger([]store.UserBudget{{User: "ann", RequestsPerDay: 1}})
		must(t, err)
		_, err = l.Reserve(t.Context(), w.reservation(run, "ann"))
		return err
	}
	w.s = one
	w.add("run_a", begun("ann", ""))
	w.s = two
	w.add("run_a", &journal.TakenUp{Worker: "two"})
	must(t, reserve("run_a"))
	w.s = one
	w.add("run_a", &journal.TakenUp{Worker: "one"})
	must(t, w.send("run_a"))
	w.at = w.at.Add(2 * store.ReservationGrace)
	if err := reserve("run_b"); !errors.As(err, new(*toolcrib.BudgetError)) {
		t.Errorf("a request that was sent no longer counts: error %v, want a refusal", err)
	}
}

// ledgerAtOnce tests that of concurrent runs exactly as many send as there are requests.
func ledgerAtOnce(t *testing.T, database Database) {
	const runs, limit = 64, 10
	s := database(t, noon)()
	l, err := s.Ledger([]store.UserBudget{{User: store.EveryUser, RequestsPerDay: limit}})
	must(t, err)
	var sent atomic.Int64
	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() {
			w, run := &writer{t: t, s: s, at: noon(), after: map[toolcrib.RunID]toolcrib.Seq{}},
				toolcrib.RunID(fmt.Sprint("run_", i))
			err := w.try(run, begun("ann", ""))
			if err == nil {
				_, err = l.Reserve(t.Context(), w.reservation(run, "ann"))
			}
			if err == nil {
				sent.Add(1)
				err = errors.Join(w.send(run), w.try(run, answer(store.UseSum{})))
			}
			if err != nil && !errors.As(err, new(*toolcrib.BudgetError)) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if sent.Load() != limit {
		t.Errorf("%d requests were sent, want %d", sent.Load(), limit)
	}
}

// ledgerKept tests that for any order in which runs in two processes reserve, send, answer, fail and
// are lost, with any clock, the ledger agrees with store.Spending about spending and reservations, and
// no day or month exceeds the limit.
func ledgerKept(t *testing.T, database Database) {
	w := &writer{t: t, after: map[toolcrib.RunID]toolcrib.Seq{}}
	open := database(t, func() time.Time { return w.at })
	of, users := [2]store.Store{open(), open()}, 0
	rapid.Check(t, func(rt *rapid.T) {
		users++
		w.at = noon().Add(time.Duration(rapid.SampledFrom([]int{0, 12*60 - 3}).Draw(rt, "past noon")) * time.Minute)
		p := &purse{
			writer: w, rt: rt, user: fmt.Sprint("user \xff", users), spent: map[store.Day]store.UseSum{},
			held: map[toolcrib.RunID]*held{}, with: map[toolcrib.RunID]store.Store{},
		}
		p.budget = store.UserBudget{
			User: p.user, Key: "budgets[0]",
			RequestsPerDay:   int64(rapid.IntRange(0, 3).Draw(rt, "requests a day")),
			RequestsPerMonth: int64(rapid.IntRange(1, 5).Draw(rt, "requests a month")),
			TokensPerDay:     int64(rapid.IntRange(0, 8).Draw(rt, "tokens a day")) * 55,
			CostUSDPerMonth:  float64(rapid.IntRange(0, 8).Draw(rt, "cost a month")) * 0.28,
		}
		runs := make([]toolcrib.RunID, rapid.IntRange(1, 4).Draw(rt, "runs"))
		for i := range runs {
			runs[i] = toolcrib.RunID(fmt.Sprintf("run_%d_%d", users, i))
			w.s = of[0]
			w.add(runs[i], begun(p.user, ""))
			p.with[runs[i]] = w.s
		}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			minutes := []int{0, 0, 1, 4, 5, 6, 12 * 60, 24 * 60, -6, -24 * 60, 3 * 24 * 60, 30 * 24 * 60}
			w.at = w.at.Add(time.Duration(rapid.SampledFrom(minutes).Draw(rt, "minutes")) * time.Minute)
			w.s = of[rapid.IntRange(0, 1).Draw(rt, "process")]
			p.step(rapid.SampledFrom(runs).Draw(rt, "run"))
			p.check()
		}
	})
}

// purse models the spending and reservations of a user.
type purse struct {
	*writer
	rt     *rapid.T
	user   string
	budget store.UserBudget
	spent  map[store.Day]store.UseSum
	held   map[toolcrib.RunID]*held
	with   map[toolcrib.RunID]store.Store // process that drives a run
}

// held is a reservation.
type held struct {
	day        store.Day
	at         time.Time
	sum        store.UseSum
	sent, lost bool // its request is in the journal; it has expired
}

func (p *purse) step(run toolcrib.RunID) {
	if p.with[run] != p.s { // a process that resumes a run records that first
		p.add(run, &journal.TakenUp{Worker: "another"})
		p.with[run] = p.s
	}
	h := p.held[run]
	switch {
	case h != nil && h.sent && rapid.Bool().Draw(p.rt, "over"):
		body, used := toolcrib.Body(answer(h.sum)), h.sum // as much as was reserved
		switch rapid.IntRange(0, 2).Draw(p.rt, "how") {
		case 1:
			body = &journal.ModelFailed{Request: 1, Charged: toolcrib.TokenUsage{InputTokens: 60}, ChargedUSD: 0.25}
			used = store.UseSum{Requests: 1, UsageTokens: store.UsageTokens{InputTokens: 60}, NanoUSD: 25e7}
		case 2:
			body, used = &journal.ModelFailed{Request: 1, Unsent: true}, store.UseSum{}
		}
		p.add(run, body)
		sum := p.spent[h.day]
		sum.Add(used)
		p.spent[h.day] = sum
		delete(p.held, run)
	case h != nil && h.sent: // its driver is gone
	case h != nil && rapid.IntRange(0, 3).Draw(p.rt, "sends") > 0:
		err := p.send(run)
		today := store.DayOf(p.at)
		if refused := h.lost || today < h.day; refused != errors.Is(err, store.ErrReservation) || !refused && err != nil {
			p.rt.Fatalf("reserved %+v, sent at %s: error %v", *h, p.at, err)
		}
		if err == nil {
			h.sent, h.day = true, today
		}
	default:
		p.reserves(run)
	}
}

func (p *purse) reserves(run toolcrib.RunID) {
	l, err := p.s.Ledger([]store.UserBudget{p.budget})
	if err != nil {
		p.rt.Fatal(err)
	}
	r := p.reservation(run, p.user)
	spending, stale := store.NewSpending(p.at), []*held(nil)
	for day, sum := range p.spent {
		spending.Add(day, sum)
	}
	for other, h := range p.held {
		switch {
		case other == run || h.lost:
		case h.sent:
			spending.Add(h.day, h.sum)
		case h.at.Before(p.at.Add(-store.ReservationGrace)):
			stale = append(stale, h)
		default:
			spending.Add(max(h.day, store.DayOf(p.at)), h.sum)
		}
	}
	want, over := spending.Room([]store.UserBudget{p.budget}, r)
	room, err := l.Reserve(p.t.Context(), r)
	var refused *toolcrib.BudgetError
	errors.As(err, &refused)
	if diff := cmp.Diff(over, refused); diff != "" || room != want || refused == nil && err != nil {
		p.rt.Fatalf("room for %d, error %v; want %d (-want +got)\n%s", room, err, want, diff)
	}
	if refused != nil {
		return
	}
	for _, h := range stale {
		h.lost = true
	}
	p.held[run] = &held{day: store.DayOf(p.at), at: p.at, sum: store.Reserved(r, room)}
}

// check sums up the spending, including reservations that may still be spent.
func (p *purse) check() {
	days, months := map[store.Day]store.UseSum{}, map[string]store.UseSum{}
	count := func(day store.Day, sum store.UseSum) {
		d, m := days[day], months[day.String()[:len("2006-01")]]
		d.Add(sum)
		m.Add(sum)
		days[day], months[day.String()[:len("2006-01")]] = d, m
	}
	for day, sum := range p.spent {
		count(day, sum)
	}
	for _, h := range p.held {
		if h.sent {
			count(h.day, h.sum)
		}
	}
	b := p.budget
	for day, d := range days {
		if b.RequestsPerDay > 0 && d.Requests > b.RequestsPerDay || b.TokensPerDay > 0 && d.Tokens() > b.TokensPerDay {
			p.rt.Fatalf("%s: %s, budget %+v", day, d, b)
		}
	}
	for month, m := range months {
		if m.Requests > b.RequestsPerMonth || b.CostUSDPerMonth > 0 && float64(m.NanoUSD) > b.CostUSDPerMonth*1e9 {
			p.rt.Fatalf("%s: %s, budget %+v", month, m, b)
		}
	}
}

// treeUse tests the usage of a run tree, for any run of it.
func treeUse(t *testing.T, database Database) {
	w := newWriter(t, database)
	w.line()
	other := begins("lead", "", 0)
	other.Session = ""
	w.add("run_x", other)
	for run, tokens := range map[toolcrib.RunID]int64{"run_p": 1, "run_c": 20, "run_g": 300, "run_x": 4000} {
		w.add(run, &journal.ModelRequest{Request: 1}, &journal.Usage{
			Request: 1, Sum: toolcrib.Usage{Requests: 1, TotalTokens: tokens, CostUSD: float64(tokens)},
		})
	}
	for run, tokens := range map[toolcrib.RunID]int64{"run_p": 321, "run_c": 321, "run_g": 321, "run_x": 4000} {
		use, err := w.s.TreeUse(t.Context(), run)
		if want := (journal.SessionUse{CostUSD: float64(tokens), Tokens: tokens}); err != nil || use != want {
			t.Errorf("%s: %+v, error %v, want %+v", run, use, err, want)
		}
	}
	if _, err := w.s.TreeUse(t.Context(), "run_none"); !errors.Is(err, toolcrib.ErrNotFound) {
		t.Errorf("of no run: %v", err)
	}
}
