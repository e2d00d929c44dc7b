//go:build unix

package crash

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/client"
	"github.com/toolcrib/toolcrib/internal/natstest"
	"github.com/toolcrib/toolcrib/internal/waittest"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/people"
)

var allCuts = flag.Bool("crash.cuts", false, "play the story of three nodes with a cut of each node at every point")

// nodes are three nodes of a bus, each a town with one server: the user's, that of the model, which also offers a
// capability that writes, and that of the corpus, which offers one that reads and one that writes.
type nodes struct {
	towns map[string]*town
	cut   cut
	token string // of the user
	// alsoLost is a node that dies together with the one of the cut, and is not started again.
	alsoLost string

	mu     sync.Mutex
	passed []string // points outside of the servers
	dead   int      // servers that cut has killed
	asked  int      // calls in doubt that the client was asked about
}

// The names of the nodes.
const (
	userNode   = "user"
	mindNode   = "mind"
	corpusNode = "corpus"
)

// cut is the death of a node: at an append of its own, append/3/before, or at a point outside of it: when a request has
// reached the model or before its reply ends, ask/TURN/before and ask/TURN/after; around an effect, ring/KEY/before and
// ring/KEY/after; and when the client has seen an event of the run, seen/SEQ.
type cut struct {
	node, at string
	delay    time.Duration // with append/N/during
}

func (c cut) String() string {
	if c.at == "" {
		return "nothing"
	}
	return fmt.Sprintf("%s at %s + %s", c.node, c.at, c.delay)
}

// within reports whether the node dies at an append of its own.
func (c cut) within() bool { return strings.HasPrefix(c.at, "append/") }

// told is the end of a story.
type told struct {
	run      api.Run
	within   map[string][]Point // of the servers, by their nodes
	outside  []string
	reached  bool
	joined   int  // writes whose outcome came from the other node
	whole    bool // as without a cut
	problems []string
}

func newNodes(t *testing.T, c cut) *nodes {
	n := &nodes{towns: map[string]*town{}, cut: c}
	url := natstest.Start(t, 1, nil).URL()
	offering := func(name, offers string) {
		text := func(w *town) string {
			return fmt.Sprintf(`
bus: {url: '%s', name: %s, offers: {%s}}
providers: {town: {type: openai, api_key: none, base_url: '%s'}}
agents: {default: {model: town/m}}
mcpServers: {town: {url: '%s', trusted: true}}
rules: [{name: offered, tools: [town__ring], when: 'true', then: allow}]
server: {auth: none}
`, url, name, offers, listen(t, http.HandlerFunc(n.model)), listen(t, w.tools()))
		}
		n.add(t, name, text)
	}
	offering(mindNode, "llm.chat@2.0: {agent: default}, market.post@1.0: {tool: town__ring}")
	offering(corpusNode, "rag.query@1.0: {tool: town__look}, garden.enter@1.0: {tool: town__ring}")
	n.add(t, userNode, func(*town) string {
		key := "parameters: {type: object, required: [key], properties: {key: {type: string}}}, untrusted: false"
		return fmt.Sprintf(`
bus: {url: '%s', name: user}
providers: {far: {type: bus}}
agents: {default: {model: far/default, tools: [search_corpus, enter, post]}}
tools:
  confirm: never
  bound: # the nodes are one's own, so what they say is trusted
    search_corpus: {capability: rag.query@1.0, effect: read_only, %s}
    enter: {capability: garden.enter@1.0, effect: non_idempotent_write, %s}
    post: {capability: market.post@1.0, effect: non_idempotent_write, %s}
`, url, key, key, key)
	})
	n.towns[userNode].happened = func(arguments json.RawMessage) bool {
		var in keyed
		n.mu.Lock()
		n.asked++
		n.mu.Unlock()
		return json.Unmarshal(arguments, &in) == nil && n.effects(in.Key) > 0
	}
	n.trust(t)
	for name, w := range n.towns {
		o := &houseOrder{Trace: filepath.Join(w.dir, "trace")}
		if name == c.node && c.within() {
			o.At, o.Delay = c.at, c.delay
		}
		w.orders = []*houseOrder{o}
		w.pass = n.pass
	}
	return n
}

func (n *nodes) add(t *testing.T, name string, text func(*town) string) {
	n.towns[name] = newTownIn(t, t.TempDir(), 1, townOptions{text: text})
}

// trust makes each node trust the others as members.
func (n *nodes) trust(t *testing.T) {
	keys := map[string]bus.Key{}
	each := func(do func(name string, s *service.Service) error) {
		for name, w := range n.towns {
			if err := w.alone(func(s *service.Service) error { return do(name, s) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	each(func(name string, s *service.Service) (err error) {
		keys[name], err = s.Nodes.Key(t.Context())
		return err
	})
	each(func(name string, s *service.Service) error {
		if name == userNode {
			if err := n.enrol(t.Context(), s); err != nil {
				return err
			}
		}
		for other, key := range keys {
			if other == name {
				continue
			}
			if _, err := s.Nodes.SetTrust(t.Context(), mayor, key, toolcrib.TrustMember, other); err != nil {
				return err
			}
		}
		return nil
	})
}

// enrol makes the user, and a token for its client.
func (n *nodes) enrol(ctx context.Context, s *service.Service) error {
	u := access.NewUser{User: access.User{Name: "anna", Trust: toolcrib.TrustMember}}
	if _, err := s.People.AddUser(ctx, mayor, u); err != nil {
		return err
	}
	made, err := s.People.CreateToken(ctx, mayor, people.TokenRequest{User: u.Name, Via: "cli"})
	n.token = made.Token
	return err
}

// pass notes a point outside of the servers, and kills the server that is to die at it.
func (n *nodes) pass(label string) {
	n.mu.Lock()
	n.passed = append(n.passed, label)
	kill := n.dead == 0 && label == n.cut.at
	if kill {
		n.dead++
	}
	n.mu.Unlock()
	if !kill {
		return
	}
	if n.alsoLost != "" {
		n.towns[n.alsoLost].kill(true)
	}
	n.towns[n.cut.node].kill(false)
}

// kill kills a server, and waits for its end. If it is forever, there is no other one.
func (w *town) kill(forever bool) {
	w.mu.Lock()
	w.closed = w.closed || forever
	h := w.live[0]
	w.mu.Unlock()
	_ = h.cmd.Process.Kill()
	<-h.ended
}

// effects returns how often a call with this key had its effect.
func (n *nodes) effects(key string) (times int) {
	for _, w := range n.towns {
		w.mu.Lock()
		times += w.effects[key]
		w.mu.Unlock()
	}
	return times
}

var (
	visitKey   = regexp.MustCompile(`visit-\d+-\d+`)
	failedText = regexp.MustCompile(`"(error|refused)\\?":`)
)

// model answers for the run with the key of its prompt: it searches the corpus, writes at both other nodes, and repeats
// what these have said.
func (n *nodes) model(rw http.ResponseWriter, r *http.Request) {
	var q struct {
		Messages []struct {
			Role    string
			Content any
			Calls   []struct{ Function struct{ Arguments string } } `json:"tool_calls"`
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	key, called := "", ""
	var results []string
	for _, m := range q.Messages {
		text, _ := m.Content.(string)
		switch m.Role {
		case "user":
			key = cmp.Or(key, keyOf(text))
		case "assistant":
			for _, c := range m.Calls {
				called += c.Function.Arguments
			}
		case "tool":
			said := visitKey.FindString(text)
			if failedText.MatchString(text) {
				said = "failed"
			}
			results = append(results, cmp.Or(said, "as a person says"))
		}
	}
	out := reply{text: "bye " + key + ": " + strings.Join(results, ", ")}
	turn := 0 // that of the first call that was not made
	for _, name := range []string{"search_corpus", "enter", "post"} {
		id := fmt.Sprint(key, "-", turn)
		if !strings.Contains(called, id) {
			out.call(id, name, map[string]string{"key": id})
			break
		}
		turn++
	}
	n.pass(fmt.Sprintf("ask/%d/before", turn))
	out.send(rw, func() { n.pass(fmt.Sprintf("ask/%d/after", turn)) })
}

// tell plays the story.
func (n *nodes) tell(t *testing.T) (s told) {
	for _, w := range n.towns {
		w.open()
	}
	user := n.towns[userNode]
	v, err := user.visitAs(n.token, "visit-0")
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the nodes have heard of each other", func() bool {
		var known struct {
			Tools []struct{ Name, Unusable string }
		}
		err := v.c.Get(user.patient, "/api/tools", nil, &known)
		names := map[string]bool{}
		for _, tool := range known.Tools {
			names[tool.Name] = tool.Unusable == ""
		}
		return err == nil && names["search_corpus"] && names["enter"] && names["post"]
	})
	user.saw = func(e client.Event) {
		if e.Seq > 0 {
			n.pass(fmt.Sprint("seen/", e.Seq))
		}
	}
	if err = v.begin(); err == nil {
		s.run, err = v.stay()
	}
	if err != nil {
		s.problems = append(s.problems, fmt.Sprintf("the visit: %v", err))
	}
	return n.end(&s)
}

// end ends the servers, and looks into the journals.
func (n *nodes) end(s *told) told {
	s.within = map[string][]Point{}
	for name, w := range n.towns {
		w.end()
		points, err := readTrace(filepath.Join(w.dir, "trace"))
		if err != nil {
			s.problems = append(s.problems, err.Error())
		}
		s.within[name] = points
		s.reached = s.reached || name == n.cut.node && slices.ContainsFunc(points, func(p Point) bool { return p.Label == n.cut.at })
		problems := w.inspect(&Scenario{waits: name != userNode}, func(one *Story, run *agent.State) { s.joined += one.Told })
		for _, p := range problems {
			s.problems = append(s.problems, name+": "+p)
		}
		for key, times := range w.effects {
			if times > 1 {
				s.problems = append(s.problems, fmt.Sprintf("%s: %s was written %d times", name, key, times))
			}
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s.outside = n.passed
	s.reached = s.reached || n.dead > 0
	return *s
}

// check compares the end with that of a story without a cut.
func (s *told) check(n *nodes, base *told) {
	problemf := func(format string, args ...any) { s.problems = append(s.problems, fmt.Sprintf(format, args...)) }
	run := &s.run
	switch {
	case !run.Status.Ended():
		problemf("the run is %s", run.Status)
	case run.Status == toolcrib.StatusFailed && (run.StopReason == "" || run.Error == nil || run.Error.Code == ""):
		problemf("the run failed, and does not say why: %+v", run)
	}
	done := 0
	for _, c := range run.Trace {
		var in keyed
		if err := json.Unmarshal(c.Arguments, &in); err != nil {
			problemf("%s: %v", c.Name, err)
		}
		switch ok := c.Status == toolcrib.ResultOK && !c.IsError; {
		case ok && c.Name != "search_corpus" && n.effects(in.Key) != 1:
			problemf("%s succeeded, and was done %d times", c.Name, n.effects(in.Key))
		case ok:
			done++
		case n.cut.node != userNode && c.Reason == toolcrib.ReasonNotRegistered: // while its node is gone, so is the tool
		case !lostCall.MatchString(c.Result):
			problemf("%s ended with %s", c.Name, c.Result)
		}
	}
	s.whole = run.Content == base.run.Content
	all := len(base.run.Trace)
	if run.Status == toolcrib.StatusCompleted && (s.whole != (done == all) || strings.Count(run.Content, "failed") != all-done) {
		problemf("the answer is %q after %d calls that succeeded, and without a cut %q", run.Content, done, base.run.Content)
	}
	if n.cut.node == userNode && strings.HasPrefix(n.cut.at, "ring/") && s.joined != 1 {
		problemf("the other node was not asked about the write: %d told", s.joined)
	}
}

// lostCall is the result of a call whose node was killed.
var lostCall = regexp.MustCompile(`"error":"(partition|timeout|not_found|overloaded)"`)

// cuts returns all cuts of a story, by their kinds of points.
func (s *told) cuts(r *rand.Rand) map[string][]cut {
	all := map[string][]cut{}
	add := func(kind string, c cut) { all[kind] = append(all[kind], c) }
	for _, node := range []string{userNode, mindNode, corpusNode} {
		for _, p := range s.within[node] {
			c := cut{node: node, at: p.Label}
			if p.during() {
				c.delay = time.Duration(r.Int64N(int64(maxDelay)))
			}
			add("append/"+path.Base(p.Label), c)
		}
		for _, label := range s.outside {
			kind, _, _ := strings.Cut(label, "/")
			if last := path.Base(label); last == "before" || last == "after" {
				kind += "/" + last
			}
			add(kind, cut{node: node, at: label})
		}
	}
	return all
}

// nodesJobs is how many stories of three nodes are played at a time: they mostly wait until a node is found to be lost.
const nodesJobs = 6

// TestServe_Nodes plays the story of three nodes, of which one is killed at an event, and started again. The run ends, with
// the answer that it has without that, or says which call has failed; and nothing is done twice.
func TestServe_Nodes(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(theSeed(t), 2))
	began := time.Now()
	n := newNodes(t, cut{})
	base := n.tell(t)
	if base.check(n, &base); len(base.problems) > 0 {
		t.Fatal(strings.Join(base.problems, "\n    "))
	}
	chosen := [2][]cut{{{node: userNode, at: "ring/visit-0-1/after"}}} // the first are played in any case
	all := base.cuts(r)
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		of := all[kind]
		r.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
		of = slices.DeleteFunc(of, func(c cut) bool { return c == chosen[0][0] })
		chosen[0] = append(chosen[0], of[0])
		switch {
		case *allCuts:
			chosen[0] = append(chosen[0], of[1:]...)
		case !testing.Short() && len(of) > 1:
			chosen[1] = append(chosen[1], of[1])
		}
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	counts := map[string]int{}
	free := make(chan struct{}, nodesJobs)
	for i, c := range slices.Concat(chosen[0], chosen[1]) {
		free <- struct{}{}
		if i >= len(chosen[0]) && time.Since(began) > patience {
			break
		}
		group.Go(func() {
			defer func() { <-free }()
			t.Run(c.String(), func(t *testing.T) {
				n := newNodes(t, c)
				s := n.tell(t)
				s.check(n, &base)
				if len(s.problems) > 0 {
					t.Error(strings.Join(s.problems, "\n    "))
				}
				mu.Lock()
				defer mu.Unlock()
				for what, is := range map[string]bool{
					"stories": true, "reached": s.reached, "as without": s.whole, "failed": s.run.Status == toolcrib.StatusFailed,
				} {
					if is {
						counts[what]++
					}
				}
				counts["told"] += s.joined
				counts["in doubt"] += n.asked
				t.Logf("%s: reached %v, %s %q, %d told, %d in doubt", c, s.reached, s.run.Status, s.run.Content, s.joined, n.asked)
			})
		})
	}
	group.Wait()
	t.Logf("%v in %s", counts, time.Since(began).Round(time.Second))
}

// A write whose node is lost together with the process that waits for it is in doubt, and a person says what has become
// of it.
func TestServe_NodeLost(t *testing.T) {
	t.Parallel()
	n := newNodes(t, cut{node: userNode, at: "ring/visit-0-1/after"})
	n.alsoLost = corpusNode
	s := n.tell(t)
	for _, p := range s.problems {
		t.Error(p)
	}
	if want := "bye visit-0: visit-0-0, as a person says, visit-0-2"; s.run.Content != want || n.asked != 1 || s.joined != 0 ||
		n.effects("visit-0-1") != 1 {
		t.Errorf("%s %q, want %q; %d in doubt, %d told", s.run.Status, s.run.Content, want, n.asked, s.joined)
	}
}
