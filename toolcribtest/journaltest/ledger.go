package journaltest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// RunLedger runs the suite of the ledgers of a store; open returns an empty one.
func RunLedger(t *testing.T, open func(t *testing.T) store.Store) {
	for name, test := range map[string]func(*testing.T, *purse){
		"Buckets":        ledgerBuckets,
		"WhatIsLeft":     ledgerWhatIsLeft,
		"Unpriced":       ledgerUnpriced,
		"NoBudget":       ledgerNoBudget,
		"EachUser":       ledgerEachUser,
		"FirstRefusal":   ledgerFirstRefusal,
		"OneForARun":     ledgerOneForARun,
		"Settled":        ledgerSettled,
		"Unsent":         ledgerUnsent,
		"NeverSent":      ledgerNeverSent,
		"SentAndLost":    ledgerSentAndLost,
		"Days":           ledgerDays,
		"Months":         ledgerMonths,
		"OverMidnight":   ledgerOverMidnight,
		"ClockSetBack":   ledgerClockSetBack,
		"AtOnce":         ledgerAtOnce,
		"NeverOverspent": ledgerNeverOverspent,
	} {
		t.Run(name, func(t *testing.T) { test(t, newPurse(t, open(t))) })
	}
}

// purse sends requests of runs.
type purse struct {
	t     testing.TB
	s     store.Store
	after map[toolcrib.RunID]toolcrib.Seq
}

func newPurse(t testing.TB, s store.Store) *purse {
	return &purse{t: t, s: s, after: map[toolcrib.RunID]toolcrib.Seq{}}
}

func (p *purse) ledger(budgets ...store.UserBudget) toolcrib.Ledger {
	p.t.Helper()
	for i := range budgets {
		budgets[i].Key = fmt.Sprintf("budgets[%d]", i)
		if budgets[i].User == "" {
			budgets[i].User = store.EveryUser
		}
	}
	l, err := p.s.Ledger(budgets)
	if err != nil {
		p.t.Fatal(err)
	}
	return l
}

func (p *purse) add(run toolcrib.RunID, at time.Time, bodies ...toolcrib.Body) error {
	events := make([]toolcrib.Event, len(bodies))
	for i, b := range bodies {
		events[i] = toolcrib.Event{Time: at, Body: b}
	}
	err := p.s.Append(p.t.Context(), run, p.after[run], events...)
	if err == nil {
		p.after[run] += toolcrib.Seq(len(bodies))
	}
	return err
}

func (p *purse) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *purse) start(run toolcrib.RunID, user string, at time.Time) {
	p.t.Helper()
	p.must(p.add(run, at, &journal.RunStarted{Format: journal.Format, Principal: toolcrib.Principal{User: user}}))
}

func (p *purse) reserve(l toolcrib.Ledger, run toolcrib.RunID, user string, at time.Time) error {
	_, err := l.Reserve(p.t.Context(), toolcrib.Reservation{
		Run: run, Request: 1, User: user, Tokens: 100, CostUSD: 0.5, Price: toolcrib.Price{Known: true}, At: at,
	})
	return err
}

func (p *purse) send(run toolcrib.RunID, at time.Time) error {
	return p.add(run, at, &journal.ModelRequest{Request: 1, ReservedInput: 60, ReservedOutput: 40, ReservedUSD: 0.5})
}

// answer settles a request at 50 tokens and a quarter of a dollar.
func (p *purse) answer(run toolcrib.RunID, at time.Time) error {
	return p.add(run, at, &journal.Usage{Request: 1, Tokens: toolcrib.TokenUsage{InputTokens: 30, OutputTokens: 20}, CostUSD: 0.25})
}

// ask is a whole request of a new run.
func (p *purse) ask(l toolcrib.Ledger, run toolcrib.RunID, user string, at time.Time) error {
	p.t.Helper()
	if p.after[run] == 0 {
		p.start(run, user, at)
	}
	if err := p.reserve(l, run, user, at); err != nil {
		return err
	}
	p.must(p.send(run, at))
	p.must(p.answer(run, at))
	return nil
}

// over is the refusal that an error is; a test that gets another one fails.
func over(t testing.TB, err error, bucket string) *toolcrib.BudgetError {
	t.Helper()
	var refused *toolcrib.BudgetError
	if !errors.As(err, &refused) || refused.Bucket != bucket {
		t.Fatalf("error %v, want a refusal by %s", err, bucket)
	}
	return refused
}

func noon() time.Time { return time.Date(2026, 2, 27, 12, 0, 0, 0, time.UTC) }

func ledgerBuckets(t *testing.T, p *purse) {
	day, month := time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC), time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		b    store.UserBudget
		want toolcrib.BudgetError
	}{
		"requests_per_day":   {store.UserBudget{RequestsPerDay: 2}, toolcrib.BudgetError{Limit: 2, Spent: 2, Asked: 1, Resets: day}},
		"tokens_per_day":     {store.UserBudget{TokensPerDay: 199}, toolcrib.BudgetError{Limit: 199, Spent: 100, Asked: 100, Resets: day}},
		"cost_usd_per_day":   {store.UserBudget{CostUSDPerDay: 0.75}, toolcrib.BudgetError{Limit: 0.75, Spent: 0.5, Asked: 0.5, Resets: day}},
		"requests_per_month": {store.UserBudget{RequestsPerMonth: 2}, toolcrib.BudgetError{Limit: 2, Spent: 2, Asked: 1, Resets: month}},
		"tokens_per_month":   {store.UserBudget{TokensPerMonth: 150}, toolcrib.BudgetError{Limit: 150, Spent: 100, Asked: 100, Resets: month}},
		"cost_usd_per_month": {store.UserBudget{CostUSDPerMonth: 0.8}, toolcrib.BudgetError{Limit: 0.8, Spent: 0.5, Asked: 0.5, Resets: month}},
	} {
		l := p.ledger(c.b)
		for i := range 2 {
			p.must(p.ask(l, toolcrib.RunID(fmt.Sprint("run_", name, i)), name, noon()))
		}
		c.want.Bucket, c.want.User = "budgets[0]."+name, name
		if got := over(t, p.ask(l, toolcrib.RunID("run_"+name), name, noon()), c.want.Bucket); *got != c.want {
			t.Errorf("%+v, want %+v", *got, c.want)
		}
	}
}

// No more output is set aside than there is room for, and the error names the room.
func ledgerWhatIsLeft(t *testing.T, p *purse) {
	r := toolcrib.Reservation{
		Request: 1, Tokens: 1013, Output: 1000, CostUSD: 0.001013, Price: toolcrib.Price{Input: 1, Output: 1, Known: true}, At: noon(),
	}
	for i, c := range []struct {
		b           store.UserBudget
		first, next int64 // room of two requests, one after the other; 0 = none
	}{
		{store.UserBudget{RequestsPerDay: 2}, -1, -1},
		{store.UserBudget{TokensPerDay: 5000}, 4987, 3974},
		{store.UserBudget{TokensPerDay: 1500}, 1487, 474},
		{store.UserBudget{TokensPerMonth: 100}, 87, 0},
		{store.UserBudget{TokensPerMonth: 100, TokensPerDay: 50}, 37, 0},
		{store.UserBudget{TokensPerDay: 13}, 0, 0},
		{store.UserBudget{CostUSDPerDay: 0.0005}, 487, 0},
		{store.UserBudget{CostUSDPerDay: 0.0015, TokensPerDay: 1400}, 1387, 374},
	} {
		r.User = fmt.Sprint("left", i)
		l := p.ledger(c.b)
		for n, want := range []int64{c.first, c.next} {
			r.Run = toolcrib.RunID(fmt.Sprint("run_left", i, n))
			room, err := l.Reserve(t.Context(), r)
			if (err != nil) != (want == 0) || room != want {
				t.Errorf("%+v: request %d: room for %d, error %v, want %d", c.b, n+1, room, err, want)
			}
		}
	}
}

// Without a known price no ceiling of cost can be kept.
func ledgerUnpriced(t *testing.T, p *purse) {
	l := p.ledger(store.UserBudget{User: "ann", CostUSDPerDay: 1000}, store.UserBudget{RequestsPerDay: 9})
	for user, bucket := range map[string]string{"ann": "budgets[0].cost_usd_per_day", "bob": ""} {
		if got := l.CapsCost(user); got != bucket {
			t.Errorf("%s: %q caps cost, want %q", user, got, bucket)
		}
		_, err := l.Reserve(t.Context(), toolcrib.Reservation{Run: toolcrib.RunID("run_" + user), Request: 1, User: user, Tokens: 1, At: noon()})
		if user == "bob" {
			p.must(err)
		} else if refused := over(t, err, bucket); !refused.Unpriced || !strings.Contains(refused.Error(), "no known price") {
			t.Error(refused)
		}
	}
}

func ledgerNoBudget(t *testing.T, p *purse) {
	if l, err := p.s.Ledger([]store.UserBudget{{User: "*"}, {User: "ann"}}); l != nil || err != nil {
		t.Errorf("ledger %v, error %v for no ceiling", l, err)
	}
	for _, b := range []store.UserBudget{{RequestsPerDay: 1}, {User: "*", RequestsPerDay: -1}, {User: "*", CostUSDPerMonth: math.NaN()}, {User: "*", CostUSDPerDay: math.Inf(1)}} {
		if _, err := p.s.Ledger([]store.UserBudget{b}); err == nil {
			t.Errorf("%+v is taken", b)
		}
	}
	l := p.ledger(store.UserBudget{User: "ann", RequestsPerDay: 1})
	for range 3 {
		p.must(p.ask(l, "run_b", "bob", noon()))
	}
	if _, err := l.Reserve(t.Context(), toolcrib.Reservation{User: "ann"}); err == nil {
		t.Error("a reservation of no run at no time is made")
	}
}

func ledgerEachUser(t *testing.T, p *purse) {
	l := p.ledger(store.UserBudget{RequestsPerDay: 1}, store.UserBudget{User: "bob", RequestsPerDay: 5})
	for _, user := range []string{"ann", "", "\xff"} {
		p.must(p.ask(l, toolcrib.RunID("run_"+user), user, noon()))
		over(t, p.ask(l, toolcrib.RunID("run_2"+user), user, noon()), "budgets[0].requests_per_day")
	}
	// Who has a budget of their own has that one, and may have more than everybody.
	for i := range 5 {
		p.must(p.ask(l, toolcrib.RunID(fmt.Sprint("run_bob", i)), "bob", noon()))
	}
	over(t, p.ask(l, "run_bob", "bob", noon()), "budgets[1].requests_per_day")
	free := p.ledger(store.UserBudget{RequestsPerDay: 1}, store.UserBudget{User: "ann"})
	p.must(p.ask(free, "run_free", "ann", noon()))
}

func ledgerFirstRefusal(t *testing.T, p *purse) {
	l := p.ledger(store.UserBudget{RequestsPerDay: 9}, store.UserBudget{User: "ann", RequestsPerDay: 5}, store.UserBudget{User: "ann", RequestsPerMonth: 1, TokensPerMonth: 1e6}, store.UserBudget{RequestsPerDay: 1})
	p.must(p.ask(l, "run_a", "ann", noon()))
	refused := over(t, p.ask(l, "run_a", "ann", noon()), "budgets[2].requests_per_month")
	if !strings.Contains(refused.Error(), "budgets[2].requests_per_month of ann: 1 of 1 spent or reserved; there is room again from 2026-03-01") {
		t.Error(refused)
	}
	p.must(p.ask(l, "run_b", "bob", noon()))
	over(t, p.ask(l, "run_b", "bob", noon()), "budgets[3].requests_per_day")
}

func ledgerOneForARun(t *testing.T, p *purse) {
	l := p.ledger(store.UserBudget{RequestsPerDay: 2})
	for _, run := range []toolcrib.RunID{"run_a", "run_b"} {
		p.start(run, "ann", noon())
		for range 3 {
			p.must(p.reserve(l, run, "ann", noon()))
		}
	}
	over(t, p.reserve(l, "run_c", "ann", noon()), "budgets[0].requests_per_day")
	p.must(p.reserve(l, "run_a", "ann", noon()))
	p.must(p.add("run_a", noon(), &journal.Done{Status: toolcrib.StatusCancelled})) // it never sends it
	p.must(p.reserve(l, "run_c", "ann", noon()))
}

func ledgerSettled(t *testing.T, p *purse) {
	l := p.ledger(store.UserBudget{TokensPerDay: 150})
	p.start("run_a", "ann", noon())
	p.start("run_b", "ann", noon())
	p.must(p.reserve(l, "run_a", "ann", noon()))
	p.must(p.send("run_a", noon()))
	over(t, p.reserve(l, "run_b", "ann", noon()), "budgets[0].tokens_per_day")
	p.must(p.answer("run_a", noon())) // 50 of the 100
	p.must(p.reserve(l, "run_b", "ann", noon()))
	p.must(p.send("run_b", noon()))
	// It is charged as reserved.
	p.must(p.add("run_b", noon(), &journal.ModelFailed{Request: 1, Charged: toolcrib.TokenUsage{InputTokens: 60, OutputTokens: 40}}))
	over(t, p.reserve(l, "run_b", "ann", noon()), "budgets[0].tokens_per_day")
}

func ledgerUnsent(t *testing.T, p *purse) {
	l := p.ledger(store.UserBudget{RequestsPerDay: 1})
	p.start("run_a", "ann", noon())
	p.must(p.reserve(l, "run_a", "ann", noon()))
	p.must(p.send("run_a", noon()))
	p.must(p.add("run_a", noon(), &journal.ModelFailed{Request: 1, Unsent: true}))
	p.must(p.ask(l, "run_b", "ann", noon()))
	over(t, p.reserve(l, "run_a", "ann", noon()), "budgets[0].requests_per_day")
}

// A reservation whose request was not written down counts for some minutes; after
// that the request cannot be sent with it.
func ledgerNeverSent(t *testing.T, p *purse) {
	l := p.ledger(store.UserBudget{RequestsPerDay: 1})
	p.start("run_a", "ann", noon())
	p.start("run_b", "ann", noon())
	p.must(p.reserve(l, "run_a", "ann", noon()))
	soon, late := noon().Add(store.ReservationGrace), noon().Add(store.ReservationGrace+time.Microsecond)
	over(t, p.reserve(l, "run_b", "ann", soon), "budgets[0].requests_per_day")
	p.must(p.reserve(l, "run_b", "ann", late))
	if err := p.send("run_a", late); !errors.Is(err, store.ErrReservation) {
		t.Errorf("error %v of a request whose reservation was given up", err)
	}
	p.must(p.send("run_b", late))
	p.must(p.answer("run_b", late))
	over(t, p.reserve(l, "run_a", "ann", late), "budgets[0].requests_per_day")
	p.must(p.reserve(l, "run_a", "ann", noon().AddDate(0, 0, 1)))
	p.must(p.send("run_a", noon().AddDate(0, 0, 1)))
}

// A request that was written down counts until it is settled, or its day is over.
func ledgerSentAndLost(t *testing.T, p *purse) {
	l := p.ledger(store.UserBudget{RequestsPerDay: 1, TokensPerMonth: 250})
	p.start("run_a", "ann", noon())
	p.must(p.reserve(l, "run_a", "ann", noon()))
	p.must(p.send("run_a", noon()))
	over(t, p.reserve(l, "run_b", "ann", noon().Add(11*time.Hour)), "budgets[0].requests_per_day")
	p.must(p.ask(l, "run_b", "ann", noon().Add(12*time.Hour))) // the month holds both
	over(t, p.reserve(l, "run_c", "ann", noon().Add(36*time.Hour-time.Microsecond)), "budgets[0].requests_per_day")
	p.must(p.add("run_a", noon().Add(13*time.Hour), &journal.ModelFailed{Request: 1, Class: "lost", Charged: toolcrib.TokenUsage{InputTokens: 101}}))
	next := noon().AddDate(0, 0, 3) // the month is over
	p.must(p.ask(l, "run_a", "ann", next))
}

func ledgerDays(t *testing.T, p *purse) {
	l := p.ledger(store.UserBudget{RequestsPerDay: 1})
	midnight := time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC)
	east := time.FixedZone("east", 14*3600) // days are those of UTC
	for i, c := range []struct {
		at   time.Time
		room bool
	}{
		{midnight.Add(-time.Microsecond), true},
		{midnight.Add(-time.Microsecond).In(east), false},
		{midnight, true},
		{midnight.In(east), false},
		{midnight.Add(24*time.Hour - time.Microsecond), false},
		{midnight.Add(24 * time.Hour), true},
	} {
		if err := p.ask(l, toolcrib.RunID(fmt.Sprint("run_", i)), "ann", c.at); (err == nil) != c.room {
			t.Errorf("at %s: error %v, room %v", c.at, err, c.room)
		}
	}
}

func ledgerMonths(t *testing.T, p *purse) {
	l := p.ledger(store.UserBudget{RequestsPerMonth: 1})
	for i, c := range []struct {
		at   string
		room bool
	}{
		{"2027-12-31T23:59:59.999999Z", true},
		{"2028-01-01T00:00:00Z", true},
		{"2028-01-31T23:59:59Z", false},
		{"2028-02-01T00:30:00+01:00", false}, // still January
		{"2028-02-01T00:00:00Z", true},
		{"2028-02-29T23:59:59Z", false},
		{"2028-03-01T00:00:00Z", true},
	} {
		at, err := time.Parse(time.RFC3339Nano, c.at)
		p.must(err)
		if err := p.ask(l, toolcrib.RunID(fmt.Sprint("run_", i)), "ann", at); (err == nil) != c.room {
			t.Errorf("at %s: error %v, room %v", c.at, err, c.room)
		}
	}
}

// A request counts on the day on which it was sent, whenever it is answered; one that
// is reserved before midnight and sent after it, on the next.
func ledgerOverMidnight(t *testing.T, p *purse) {
	l := p.ledger(store.UserBudget{RequestsPerDay: 1})
	midnight := time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC)
	before, after := midnight.Add(-time.Second), midnight.Add(time.Second)
	p.start("run_a", "ann", before)
	p.start("run_b", "ann", before)
	p.must(p.reserve(l, "run_a", "ann", before))
	p.must(p.send("run_a", before))
	p.must(p.answer("run_a", after))
	p.must(p.reserve(l, "run_b", "ann", after))

	over(t, p.reserve(l, "run_c", "ann", after), "budgets[0].requests_per_day")
	p.must(p.add("run_b", after, &journal.Done{Status: toolcrib.StatusCancelled}))
	p.start("run_d", "bob", before)
	p.must(p.reserve(l, "run_d", "bob", before))
	over(t, p.reserve(l, "run_e", "bob", after), "budgets[0].requests_per_day") // it may be sent at any time
	p.must(p.send("run_d", after))
	over(t, p.reserve(l, "run_e", "bob", after), "budgets[0].requests_per_day")
	p.must(p.answer("run_d", after))
	over(t, p.reserve(l, "run_e", "bob", after.Add(23*time.Hour)), "budgets[0].requests_per_day")
}

// A clock that is set back reopens no day, and gives none that was not there before.
func ledgerClockSetBack(t *testing.T, p *purse) {
	l := p.ledger(store.UserBudget{RequestsPerDay: 2, RequestsPerMonth: 3})
	p.must(p.ask(l, "run_a", "ann", noon()))
	p.must(p.ask(l, "run_a", "ann", noon()))
	for _, back := range []time.Time{noon().Add(-time.Hour), noon().AddDate(0, 0, -1), noon().AddDate(0, -1, 0), noon().AddDate(-50, 0, 0)} {
		refused := over(t, p.reserve(l, "run_b", "ann", back), "budgets[0].requests_per_day")
		if want := time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC); !refused.Resets.Equal(want) {
			t.Errorf("at %s: room from %s, want %s", back, refused.Resets, want)
		}
	}
	// What is spent while it is set back counts on its own day, too.
	p.must(p.ask(l, "run_a", "ann", noon().AddDate(0, 0, 1)))
	over(t, p.reserve(l, "run_b", "ann", noon().AddDate(0, 0, 1)), "budgets[0].requests_per_month")
	over(t, p.reserve(l, "run_b", "ann", noon().AddDate(0, -1, 0)), "budgets[0].requests_per_day")

	// Between the reservation and the request: it must not be sent.
	p.start("run_c", "bob", noon())
	p.must(p.reserve(l, "run_c", "bob", noon()))
	if err := p.send("run_c", noon().AddDate(0, 0, -1)); !errors.Is(err, store.ErrReservation) {
		t.Errorf("error %v of a request of the day before", err)
	}
}

// Of runs at the same time exactly as many send as there are requests.
func ledgerAtOnce(t *testing.T, p *purse) {
	const runs, limit = 64, 10
	l := p.ledger(store.UserBudget{RequestsPerDay: limit})
	var sent atomic.Int64
	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() {
			p, run := newPurse(t, p.s), toolcrib.RunID(fmt.Sprint("run_", i))
			steps := []func() error{
				func() error {
					return p.add(run, noon(), &journal.RunStarted{Principal: toolcrib.Principal{User: "ann"}})
				},
				func() error { return p.reserve(l, run, "ann", noon()) },
				func() error { sent.Add(1); return p.send(run, noon()) },
				func() error { return p.answer(run, noon()) },
			}
			for _, step := range steps {
				var refused *toolcrib.BudgetError
				if err := step(); errors.As(err, &refused) {
					return
				} else if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if sent.Load() != limit {
		t.Errorf("%d requests were sent, want %d", sent.Load(), limit)
	}
}

// Whatever the order in which runs reserve, send, answer, fail and are lost, with any
// clock, no day and no month holds more than the ceiling, if requests cost what was
// reserved at most.
func ledgerNeverOverspent(t *testing.T, p *purse) {
	users := 0
	rapid.Check(t, func(rt *rapid.T) {
		users++
		user := fmt.Sprint("user ", users)
		b := store.UserBudget{
			User: user, RequestsPerDay: int64(rapid.IntRange(0, 3).Draw(rt, "requests a day")), RequestsPerMonth: int64(rapid.IntRange(1, 5).Draw(rt, "requests a month")),
			TokensPerDay: int64(rapid.IntRange(0, 4).Draw(rt, "hundreds of tokens a day")) * 100, CostUSDPerMonth: float64(rapid.IntRange(0, 4).Draw(rt, "half dollars a month")) / 2,
		}
		sum := map[time.Time]*spentThen{} // by day and, at noon of its first, by month
		l, now := p.ledger(b), noon()
		runs := make([]spenderState, rapid.IntRange(1, 4).Draw(rt, "runs"))
		for i := range runs {
			runs[i].id = toolcrib.RunID(fmt.Sprintf("run_%d_%d", users, i))
			p.start(runs[i].id, user, now)
		}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 1, 4, 6, 12 * 60, 24 * 60, -6, -24 * 60, 3 * 24 * 60}).Draw(rt, "minutes")) * time.Minute)
			r := &runs[rapid.IntRange(0, len(runs)-1).Draw(rt, "run")]
			r.step(rt, p, l, user, now, sum)
		}
		for at, spent := range sum {
			month := at.Hour() == 12
			switch {
			case !month && (b.RequestsPerDay > 0 && spent.requests > b.RequestsPerDay || b.TokensPerDay > 0 && spent.tokens > b.TokensPerDay):
				rt.Errorf("%s: %+v, budget %+v", at.Format(time.DateOnly), *spent, b)
			case month && (spent.requests > b.RequestsPerMonth || b.CostUSDPerMonth > 0 && spent.usd > b.CostUSDPerMonth):
				rt.Errorf("%s: %+v, budget %+v", at.Format("2006-01"), *spent, b)
			}
		}
	})
}

type spentThen struct {
	requests, tokens int64
	usd              float64
}

// spenderState is a run with a request that is reserved or sent.
type spenderState struct {
	id             toolcrib.RunID
	reserved, sent bool
	day            time.Time // of the request
}

func (r *spenderState) step(rt *rapid.T, p *purse, l toolcrib.Ledger, user string, now time.Time, sum map[time.Time]*spentThen) {
	var refused *toolcrib.BudgetError
	switch {
	case r.sent && rapid.Bool().Draw(rt, "answered"): // half of the requests cost what was reserved
		body := toolcrib.Body(&journal.Usage{Request: 1, Tokens: toolcrib.TokenUsage{InputTokens: 60, OutputTokens: 40}, CostUSD: 0.5})
		if rapid.Bool().Draw(rt, "lost") {
			body = &journal.ModelFailed{Request: 1, Charged: toolcrib.TokenUsage{InputTokens: 60}, ChargedUSD: 0.25}
			r.count(sum, 0, -40, -0.25)
		}
		p.must(p.add(r.id, now, body))
		r.sent = false
	case r.sent: // its driver is away
	case r.reserved && rapid.IntRange(0, 3).Draw(rt, "sends") > 0:
		err := p.send(r.id, now)
		r.reserved = false
		if errors.Is(err, store.ErrReservation) {
			return
		}
		p.must(err)
		r.sent = true
		r.day = now.Truncate(24 * time.Hour)
		r.count(sum, 1, 100, 0.5)
	default:
		err := p.reserve(l, r.id, user, now)
		if errors.As(err, &refused) {
			return
		}
		p.must(err)
		r.reserved = true
	}
}

// count adds to what was spent on the day of the run's request, and in its month.
func (r *spenderState) count(sum map[time.Time]*spentThen, requests, tokens int64, usd float64) {
	for _, at := range []time.Time{r.day, r.day.AddDate(0, 0, 1-r.day.Day()).Add(12 * time.Hour)} {
		if sum[at] == nil {
			sum[at] = new(spentThen)
		}
		sum[at].requests += requests
		sum[at].tokens += tokens
		sum[at].usd += usd
	}
}
