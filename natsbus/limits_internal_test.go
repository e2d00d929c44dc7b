package natsbus

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// tick is the step of a simulation.
const tick = 500 * time.Millisecond

// maxServers is how many servers there are at most.
const maxServers = 4

// world is a simulation of servers that use a limit together.
type world struct {
	t      *rapid.T
	r      *rand.Rand
	now    time.Time
	most   [2]int
	body   []byte // the record, or nil
	at     time.Time
	made   time.Time // the stream
	down   bool      // the bus
	begun  int
	long   bool // a server was without the bus for so long that it may use one of a limit that is less than the servers
	server map[int]*node
	sent   []request // all within a minute
	log    []string
}

// request is when a server has sent a request.
type request struct {
	by string
	at time.Time
}

// node is a server.
type node struct {
	quota   quota
	running []time.Time // ends of requests
	sent    []time.Time
	wants   int       // concurrent requests
	next    time.Time // it looks at the record
	lost    int       // writes that have failed, one after another
	joins   time.Time // it reaches the bus again
}

func (w *world) say(text string, args ...any) {
	w.log = append(w.log, w.now.Format("04:05.0 ")+fmt.Sprintf(text, args...))
}

// join adds a server.
func (w *world) join() {
	w.begun++
	w.server[w.begun] = &node{quota: newQuota(fmt.Sprint("u", w.begun), w.most, w.now)}
	w.say("u%d begins", w.begun)
}

// use returns the use of a server.
func (n *node) use(now time.Time) (used, wanted [2]int) {
	n.running = slices.DeleteFunc(n.running, func(end time.Time) bool { return !end.After(now) })
	n.sent = slices.DeleteFunc(n.sent, func(at time.Time) bool { return now.Sub(at) >= time.Minute })
	used = [2]int{len(n.running), len(n.sent)}
	waiting := max(n.wants-len(n.running), 0)
	return used, [2]int{used[0] + waiting, used[1] + waiting}
}

func (w *world) read() *division {
	d := &division{}
	_ = json.Unmarshal(w.body, d)
	if d.Users == nil {
		d.Users = map[string]*share{}
	}
	d.age = w.now.Sub(w.at)
	return d
}

// balance has a server look at the record. Its write may fail, or succeed without an answer.
func (w *world) balance(n *node) {
	d := w.read()
	used, wanted := n.use(w.now)
	alone := n.quota.ticket == 0 && len(w.server) == 1
	_, may := n.quota.divide(d, w.now, used, wanted, w.now.Sub(w.made) > rateLasts, alone)
	fate := w.r.IntN(20)
	if n.lost++; fate == 0 && n.lost <= 2 {
		return
	}
	n.lost = 0
	w.body, _ = json.Marshal(d)
	if w.at = w.now; fate > 1 {
		n.quota.part, n.quota.ticket = may, d.Ticket
	}
}

// end ends a server: at once, or after it has given back its part.
func (w *world) end(id int, properly bool) {
	n := w.server[id]
	w.say("u%d ends properly: %v", id, properly)
	delete(w.server, id)
	if properly && !w.down && !n.joins.After(w.now) {
		used, _ := n.use(w.now)
		d := w.read()
		n.quota.end(d, w.now, used[1])
		w.body, _ = json.Marshal(d)
		w.at = w.now
		return
	}
	w.forgets()
}

// forgets forgets the requests of servers that have ended if no server knows of them, as when a single server is started
// again.
func (w *world) forgets() {
	known, sent := map[string]int{}, map[string]int{}
	for id, s := range w.read().Users {
		known[id] = s.Part[1]
	}
	for _, r := range w.sent {
		sent[r.by]++
	}
	for _, n := range w.server {
		for id, s := range n.quota.last {
			known[id] = max(known[id], s.Part[1])
		}
		if w.lone(n) {
			clear(known)
		}
	}
	for _, n := range w.server {
		known[n.quota.self] = len(w.sent)
	}
	w.sent = slices.DeleteFunc(w.sent, func(r request) bool { return known[r.by] < sent[r.by] })
}

// lone reports whether a server can know of no other.
func (w *world) lone(n *node) bool {
	return len(w.server) == 1 && n.quota.ticket == 0 && (w.down || n.joins.After(w.now))
}

// step lets time pass.
func (w *world) step() {
	w.now = w.now.Add(tick)
	for _, n := range w.server {
		if w.lone(n) {
			w.forgets()
		}
	}
	ids := slices.Sorted(maps.Keys(w.server))
	w.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	running := 0
	for _, id := range ids {
		n := w.server[id]
		reaches := !w.down && !n.joins.After(w.now)
		if !reaches {
			n.quota.servers = max(n.quota.servers, len(w.server))
		} else if !n.next.After(w.now) || n.wants > len(n.running) && w.r.IntN(2) == 0 {
			w.balance(n)
			n.next = w.now.Add(balanceEvery)
		}
		for used, _ := n.use(w.now); n.wants > used[0]; used, _ = n.use(w.now) {
			if may := n.quota.may(w.now); used[0] >= may[0] || used[1] >= may[1] {
				break
			}
			n.running = append(n.running, w.now.Add(time.Duration(1+w.r.IntN(50))*time.Second))
			n.sent, w.sent = append(n.sent, w.now), append(w.sent, request{n.quota.self, w.now})
		}
	}
	for _, n := range w.server {
		used, _ := n.use(w.now)
		running += used[0]
		w.long = w.long || w.now.Sub(n.quota.kept) > shareAfter
	}
	w.sent = slices.DeleteFunc(w.sent, func(r request) bool { return w.now.Sub(r.at) >= time.Minute })
	over := func(n, most int) bool { return n > most && (most >= maxServers || !w.long) }
	if over(running, w.most[0]) || over(len(w.sent), w.most[1]) {
		w.fail(fmt.Sprintf("%d requests at a time, %d in a minute, of %v", running, len(w.sent), w.most))
	}
}

func (w *world) fail(text string) {
	w.say("%s", text)
	for _, id := range slices.Sorted(maps.Keys(w.server)) {
		n := w.server[id]
		used, _ := n.use(w.now)
		w.say("u%d uses %v, may %v: %+v", id, used, n.quota.may(w.now), n.quota)
	}
	w.say("record %s", w.body)
	for _, line := range w.log {
		w.t.Log(line)
	}
	w.t.FailNow()
}

// With servers that begin, end and die, a bus that is gone for any time and loses its records, and answers that are
// lost, all servers together keep to the limit. In the end, a single server gets all of it.
func TestLimits_Property(t *testing.T) {
	times := 10
	if testing.Short() {
		times = 1
	}
	for range times {
		rapid.Check(t, simulate)
	}
}

// simulate lets servers use a limit, with what a test draws.
func simulate(rt *rapid.T) {
	w := &world{
		t: rt, r: rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1)), server: map[int]*node{},
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), most: [2]int{
			rapid.IntRange(1, 9).Draw(rt, "concurrent"), rapid.IntRange(1, 30).Draw(rt, "rate"),
		},
	}
	w.made = w.now
	w.join()
	pick := func() *node {
		ids := slices.Sorted(maps.Keys(w.server))
		if len(ids) == 0 {
			w.join()
			ids = []int{w.begun}
		}
		return w.server[rapid.SampledFrom(ids).Draw(rt, "server")]
	}
	rt.Repeat(map[string]func(*rapid.T){
		"wait": func(rt *rapid.T) {
			for range rapid.SampledFrom([]int{1, 5, 15, 30, 150, 200}).Draw(rt, "ticks") {
				w.step()
			}
		},
		"want": func(*rapid.T) {
			n := pick()
			n.wants = rapid.SampledFrom([]int{0, 1, 20}).Draw(rt, "wants")
			w.say("%s wants %d", n.quota.self, n.wants)
		},
		"join": func(rt *rapid.T) {
			if len(w.server) == maxServers {
				rt.Skip()
			}
			w.join()
		},
		"end": func(rt *rapid.T) {
			n := pick()
			for id, other := range w.server {
				if n == other {
					w.end(id, rapid.Bool().Draw(rt, "properly"))
				}
			}
		},
		"down": func(rt *rapid.T) {
			if w.down {
				rt.Skip()
			}
			w.down = true
			w.say("the bus is gone")
		},
		"up": func(rt *rapid.T) {
			if !w.down {
				rt.Skip()
			}
			w.down = false
			w.say("the bus is back")
			for _, id := range slices.Sorted(maps.Keys(w.server)) {
				w.server[id].joins = w.now.Add(time.Duration(w.r.IntN(1500)) * time.Millisecond)
			}
		},
		"empty": func(*rapid.T) {
			w.body, w.made = nil, w.now
			w.say("the bus is empty")
			w.forgets()
		},
	})
	w.down = false
	if len(w.server) == 0 {
		w.join()
	}
	for ids := slices.Sorted(maps.Keys(w.server)); len(ids) > 1; ids = ids[1:] {
		w.end(ids[0], false)
	}
	for _, n := range w.server {
		n.wants = 100
		for range 4 * rateLasts / tick {
			w.step()
		}
		if may := n.quota.may(w.now); may != w.most {
			w.fail("a single server does not get all")
		}
	}
}
