package gate_test

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/gate"
)

func TestSetTools(t *testing.T) {
	g := newGate(t, tool(reads("a")), tool(reads("b")))
	if _, err := g.Offer(t.Context(), alice(), wide()); err != nil {
		t.Fatal(err)
	}
	if err := g.SetTools([]toolcrib.Tool{tool(reads("b")), tool(reads("B"))}); err == nil {
		t.Fatal("tools that differ in letter case were taken")
	}
	if names := strings.Join(g.Names(), " "); names != "a b" {
		t.Fatalf("after a failure there are %s", names)
	}
	other := withSchema(reads("b"), strict)
	if err := g.SetTools([]toolcrib.Tool{tool(other), tool(reads("c"))}); err != nil {
		t.Fatal(err)
	}
	o, err := g.Offer(t.Context(), alice(), wide())
	if err != nil || len(o.Specs) != 2 || o.Specs[0].Name != "b" || o.Specs[1].Name != "c" {
		t.Fatalf("offered: %+v, %v", o.Record, err)
	}
	if states, err := g.States(t.Context()); err != nil || len(states) != 2 {
		t.Fatalf("states: %+v, %v", states, err)
	}
	f := gate.Facts{Offered: map[string]bool{"a": true, "b": true, "c": true}}
	v := judge(t, g, alice(), wide(), f, call("1", "a", `{}`), call("2", "b", `{}`), call("3", "c", `{}`))
	wantRefused(t, v[0], toolcrib.ReasonNotRegistered, "")
	wantRefused(t, v[1], toolcrib.ReasonInvalidArguments, "") // by the schema of now
	wantAllowed(t, v[2])
	gone := call("1", "a", `{}`)
	if v, withdrawn := g.Withdrawn(t.Context(), alice(), wide(), &gone); !withdrawn || v.Reason != toolcrib.ReasonNotRegistered {
		t.Fatalf("a call of a tool that is gone: %v, %s", withdrawn, v.Reason)
	}
}

// A turn, an offer and an explanation are of one set of tools, whatever happens to it
// meanwhile.
func TestSetToolsAllAtOnce(t *testing.T) {
	sets := [][]toolcrib.Tool{{tool(reads("a1")), tool(reads("a2"))}, {tool(reads("b1")), tool(reads("b2"))}}
	g := newGate(t, sets[0]...)
	var swapping, looking sync.WaitGroup
	done := make(chan struct{})
	swapping.Go(func() {
		for i := 1; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			if err := g.SetTools(sets[i%2]); err != nil {
				t.Error(err)
			}
		}
	})
	names := []string{"a1", "a2", "b1", "b2"}
	f := gate.Facts{Offered: map[string]bool{"a1": true, "a2": true, "b1": true, "b2": true}}
	oneSet := func(what string, there [4]bool) {
		if there != [4]bool{true, true} && there != [4]bool{2: true, 3: true} {
			t.Errorf("%s: of two sets: %v", what, there)
		}
	}
	for range 4 {
		looking.Go(func() {
			for range 300 {
				var judged, explained, offered [4]bool
				turn := make([]toolcrib.ToolCall, len(names))
				for i, name := range names {
					turn[i] = call(name, name, `{}`)
				}
				for i, v := range g.Judge(t.Context(), alice(), wide(), f, turn) {
					judged[i] = !v.Refused()
				}
				oneSet("judged", judged)
				for i, x := range g.Explain(t.Context(), alice(), wide(), names...) {
					explained[i] = x.Registered && x.Offered
				}
				oneSet("explained", explained)
				o, err := g.Offer(t.Context(), alice(), wide())
				if err != nil {
					t.Error(err)
				}
				set := o.Set()
				for i, name := range names {
					offered[i] = set[name]
				}
				oneSet("offered", offered)
			}
		})
	}
	looking.Wait()
	close(done)
	swapping.Wait()
}

// A gate that is made after another one offers and judges as it does by itself, whatever the two
// have in common.
func TestBefore(t *testing.T) {
	before := newGate(t, tool(reads("same")), tool(withSchema(reads("schema"), strict)), tool(reads("told")), tool(reads("gone")))
	told := reads("told")
	told.Description += " And more."
	o := gate.Options{
		Tools:        []toolcrib.Tool{tool(reads("same")), tool(reads("schema")), tool(told), tool(reads("new"))},
		Availability: gate.Overrides{},
	}
	alone, err := gate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	o.Before = before
	after, err := gate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	var offers [2]gate.Offer
	for i, g := range []*gate.Gate{alone, after} {
		if offers[i], err = g.Offer(t.Context(), alice(), wide()); err != nil {
			t.Fatal(err)
		}
		f := gate.Facts{Offered: map[string]bool{"same": true, "schema": true, "gone": true}}
		v := judge(t, g, alice(), wide(), f, call("1", "same", `{}`), call("2", "schema", `{}`), call("3", "gone", `{}`))
		wantAllowed(t, v[0])
		wantAllowed(t, v[1]) // its schema demands something no more
		wantRefused(t, v[2], toolcrib.ReasonNotRegistered, "")
	}
	if !reflect.DeepEqual(offers[0].Record, offers[1].Record) || !reflect.DeepEqual(offers[0].Specs, offers[1].Specs) {
		t.Errorf("offered %+v, want %+v", offers[1].Record, offers[0].Record)
	}
	was, err := before.Offer(t.Context(), alice(), wide())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range was.Record.Tools {
		same := slices.Contains(offers[1].Record.Tools, one)
		if want := one.Name == "same"; same != want {
			t.Errorf("%s has the same hash: %v, want %v", one.Name, same, want)
		}
	}
}
