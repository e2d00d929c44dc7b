package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

func moment(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// used is what so many requests have used, of 100 tokens and half a dollar.
func used(n int64) store.UseSum {
	return store.UseSum{Requests: n, UsageTokens: store.UsageTokens{InputTokens: 100 * n}, NanoUSD: 5e8 * n}
}

func asked(at time.Time) toolcrib.Reservation {
	return toolcrib.Reservation{User: "ann", Tokens: 100, CostUSD: 0.5, Price: toolcrib.Price{Known: true}, At: at}
}

// Each ceiling refuses what it leaves no room for, says when there is some again, and is named.
func TestN11_Ceilings(t *testing.T) {
	at, day, month := moment(t, "2026-02-27T12:00:00Z"), moment(t, "2026-02-28T00:00:00Z"), moment(t, "2026-03-01T00:00:00Z")
	for name, c := range map[string]struct {
		b    store.UserBudget
		want toolcrib.BudgetError
	}{
		"requests_per_day":   {store.UserBudget{RequestsPerDay: 1}, toolcrib.BudgetError{Limit: 1, Spent: 1, Asked: 1, Resets: day}},
		"tokens_per_day":     {store.UserBudget{TokensPerDay: 199}, toolcrib.BudgetError{Limit: 199, Spent: 100, Asked: 100, Resets: day}},
		"cost_usd_per_day":   {store.UserBudget{CostUSDPerDay: 0.75}, toolcrib.BudgetError{Limit: 0.75, Spent: 0.5, Asked: 0.5, Resets: day}},
		"requests_per_month": {store.UserBudget{RequestsPerMonth: 1}, toolcrib.BudgetError{Limit: 1, Spent: 1, Asked: 1, Resets: month}},
		"tokens_per_month":   {store.UserBudget{TokensPerMonth: 150}, toolcrib.BudgetError{Limit: 150, Spent: 100, Asked: 100, Resets: month}},
		"cost_usd_per_month": {store.UserBudget{CostUSDPerMonth: 0.8}, toolcrib.BudgetError{Limit: 0.8, Spent: 0.5, Asked: 0.5, Resets: month}},
	} {
		c.b.User, c.b.Key, c.want.Bucket, c.want.User = store.EveryUser, "budgets[0]", "budgets[0]."+name, "ann"
		s := store.NewSpending(at)
		if _, over := s.Room([]store.UserBudget{c.b}, asked(at)); over != nil {
			t.Errorf("%s, nothing spent: %v", name, over)
		}
		s.Add(store.DayOf(at), used(1))
		if _, over := s.Room([]store.UserBudget{c.b}, asked(at)); over == nil || *over != c.want {
			t.Errorf("%+v, want %+v", over, c.want)
		}
	}
}

// No more output is set aside than there is room for, and the error names the room.
func TestN11_WhatIsLeft(t *testing.T) {
	r := toolcrib.Reservation{
		User: "ann", Tokens: 1013, Output: 1000, CostUSD: 0.001013, Price: toolcrib.Price{Input: 1, Output: 1, Known: true}, At: moment(t, "2026-02-27T12:00:00Z"),
	}
	for _, c := range []struct {
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
		c.b.User = "ann"
		s := store.NewSpending(r.At)
		for n, want := range []int64{c.first, c.next} {
			room, over := s.Room([]store.UserBudget{c.b}, r)
			if (over != nil) != (want == 0) || room != want {
				t.Errorf("%+v: request %d: room for %d, error %v, want %d", c.b, n+1, room, over, want)
			}
			if over == nil {
				s.Add(store.DayOf(r.At), store.Reserved(r, room))
			}
		}
	}
}

// All budgets of a user hold, and those of everybody only for who has none; the first that refuses
// is named. Without a known price no ceiling of cost can be kept.
func TestN11_WhoseBudget(t *testing.T) {
	at := moment(t, "2026-02-27T12:00:00Z")
	budgets := []store.UserBudget{
		{User: "*", RequestsPerDay: 9},
		{User: "ann", RequestsPerDay: 5},
		{User: "ann", RequestsPerMonth: 1, TokensPerMonth: 1e6},
		{User: "*", RequestsPerDay: 1},
		{User: "cat", CostUSDPerDay: 1000},
		{User: "free"},
	}
	for i := range budgets {
		budgets[i].Key = fmt.Sprintf("budgets[%d]", i)
	}
	for user, want := range map[string]string{
		"ann": "budgets[2].requests_per_month of ann: 1 of 1 spent or reserved; more is available from 2026-03-01",
		"bob": "budgets[3].requests_per_day of bob", "": "budgets[3].requests_per_day", "free": "", "cat": "no known price",
	} {
		s, r := store.NewSpending(at), asked(at)
		s.Add(store.DayOf(at), used(1))
		r.User, r.Price.Known = user, user != "cat"
		_, over := s.Room(budgets, r)
		if (over == nil) != (want == "") || over != nil && (!strings.Contains(over.Error(), want) || over.Unpriced != (user == "cat")) {
			t.Errorf("%q: %v, want %q", user, over, want)
		}
	}
	if cat, ann := store.CapsCost(budgets, "cat"), store.CapsCost(budgets, "ann"); cat != "budgets[4].cost_usd_per_day" || ann != "" {
		t.Errorf("%q and %q cap cost", cat, ann)
	}
}

// Days and months are those of UTC. What counts on a later day, because a clock was set back,
// counts on every day before it, too.
func TestN11_DaysAndMonths(t *testing.T) {
	east := time.FixedZone("east", 14*3600)
	for _, c := range []struct {
		spent, at  string
		day, month string // when there is room again; "" = there is
	}{
		{"2026-02-27T23:59:59.999999Z", "2026-02-27T00:00:00Z", "2026-02-28", "2026-03-01"},
		{"2026-02-27T23:59:59.999999Z", "2026-02-28T00:00:00Z", "", "2026-03-01"},
		{"2026-02-28T23:59:59.999999Z", "2026-03-01T00:00:00Z", "", ""},
		{"2028-02-28T12:00:00Z", "2028-02-29T23:59:59Z", "", "2028-03-01"},
		{"2027-12-31T23:59:59.999999Z", "2028-01-01T00:00:00Z", "", ""},
		{"2026-02-27T12:00:00Z", "2026-02-26T12:00:00Z", "2026-02-28", "2026-03-01"},
		{"2026-02-27T12:00:00Z", "1976-02-27T12:00:00Z", "2026-02-28", "2026-03-01"},
	} {
		at := moment(t, c.at)
		for _, at := range []time.Time{at, at.In(east)} {
			s := store.NewSpending(at)
			s.Add(store.DayOf(moment(t, c.spent)), used(1))
			for want, b := range map[*string]store.UserBudget{&c.day: {User: "ann", RequestsPerDay: 1}, &c.month: {User: "ann", RequestsPerMonth: 1}} {
				got := ""
				if _, over := s.Room([]store.UserBudget{b}, asked(at)); over != nil {
					got = over.Resets.Format(time.DateOnly)
				}
				if got != *want {
					t.Errorf("spent %s, at %s, %+v: room from %q, want %q", c.spent, at, b, got, *want)
				}
			}
		}
	}
}
