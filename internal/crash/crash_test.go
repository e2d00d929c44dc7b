package crash

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store/postgres"
	"github.com/toolcrib/toolcrib/store/sqlite"
	"github.com/toolcrib/toolcrib/tool/ask"
	"github.com/toolcrib/toolcrib/tool/files"
	"github.com/toolcrib/toolcrib/tool/shell"
	"github.com/toolcrib/toolcrib/tool/spawn"
	"github.com/toolcrib/toolcrib/toolcribtest/journaltest"
)

// lyingEnv makes edit_file say of everything that it did not happen.
const lyingEnv = "TOOLCRIB_CRASH_LYING"

func TestMain(m *testing.M) {
	shell.Main()
	playServer()
	playProcess()
	playHouse()
	os.Exit(m.Run())
}

// openStore opens the store of a story: SQLite, or what postgresFile of its folder says.
func openStore(ctx context.Context, dir string) (*synced, error) {
	text, err := os.ReadFile(filepath.Join(dir, postgresFile))
	if errors.Is(err, fs.ErrNotExist) {
		st, err := sqlite.Open(ctx, filepath.Join(dir, database), sqlite.Options{})
		if err != nil {
			return nil, err
		}
		return &synced{counting: st}, nil
	}
	address, keys, _ := strings.Cut(string(text), "\n")
	st, err := postgres.Open(ctx, address, postgres.Options{Keys: keys})
	if err != nil {
		return nil, err
	}
	return &synced{counting: st}, nil
}

func workTools() ([]toolcrib.Tool, error) {
	sh, err := shell.New(shell.Options{Mode: shell.ModeAny, Report: &shell.Report{Problem: "not for this test"}})
	tools := append(files.New(files.Options{}), ask.New(), sh)
	if os.Getenv(lyingEnv) != "" {
		for i, t := range tools {
			if t.Spec().Name == "edit_file" {
				tools[i] = liar{t.(toolcrib.Planner)}
			}
		}
	}
	return tools, err
}

func spawnTool(names []string) toolcrib.Tool {
	var agents []spawn.Agent
	for _, name := range names {
		agents = append(agents, spawn.Agent{Name: name})
	}
	return spawn.New(agents)
}

// liar says after a crash that nothing happened.
type liar struct{ toolcrib.Planner }

func (l liar) Plan(ctx context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	plan, err := l.Planner.Plan(ctx, call)
	if err == nil {
		plan.Reconcile = func(context.Context, toolcrib.Call, json.RawMessage) (toolcrib.Reconciled, error) {
			return toolcrib.Reconciled{State: toolcrib.NotHappened}, nil
		}
	}
	return plan, err
}

var (
	seed    = flag.Uint64("crash.seed", 0, "of the sample; 0 = from the time")
	singles = flag.Int("crash.singles", 80, "stories with one kill; half of them with -short")
	doubles = flag.Int("crash.doubles", 50, "stories with two kills; half of them with -short")
)

const (
	// jobs is how many stories are played at a time.
	jobs = 3
	// patience is how long each half of the sample may take; on a slow machine
	// only the stories that the sample must have are played after it.
	patience = 12 * time.Second
	// families is the least number of scenarios with child runs that are played, chosen by the seed.
	families = 4
)

func harness(t *testing.T) *Harness {
	t.Helper()
	if !Supported {
		t.Skip("SKIP: a process cannot be killed here as kill -9 does; the crash test needs Unix")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &Harness{Exe: exe, Dir: t.TempDir()}
}

func scenario(t *testing.T, name string) *Scenario {
	t.Helper()
	all := Scenarios()
	i := slices.IndexFunc(all, func(sc *Scenario) bool { return sc.Name == name })
	if i < 0 {
		t.Fatalf("no scenario %q", name)
	}
	return all[i]
}

// sample is what TestCrash_Sample has seen.
type sample struct {
	t       *testing.T
	r       *rand.Rand
	covered map[toolcrib.Kind]bool
	inDoubt int
	told    int
	missed  int
	late    []Tale // stories with a second kill, to choose from
}

func newSample(t *testing.T) *sample {
	t.Helper()
	return &sample{t: t, r: rand.New(rand.NewPCG(theSeed(t), 0)), covered: map[toolcrib.Kind]bool{}}
}

func theSeed(t *testing.T) uint64 {
	n := *seed
	if n == 0 {
		n = uint64(time.Now().UnixNano())
	}
	t.Logf("to play it again: -crash.seed=%d", n)
	return n
}

// TestCrash_Sample kills runs at points of a sample that covers each scenario of one
// run, some of those in which runs start one another, and each kind of event;
// TestCrash_Sweep takes all points.
func TestCrash_Sample(t *testing.T) {
	t.Parallel()
	h := harness(t)
	s := newSample(t)
	var all []Tale
	var chosen []Tale
	bases := s.undisturbed(h)
	for _, base := range bases {
		tales := tales(base, base.Deaths(0, s.r), nil)
		chosen = append(chosen, tales[s.r.IntN(len(tales))])
		all = append(all, tales...)
	}
	for _, label := range []string{"effect/c1/1/after", "effect/w1/1/before", "effect/w1/1/after"} {
		chosen = append(chosen, s.dyingAt(all, label))
	}
	once, twice := *singles, *doubles
	if testing.Short() {
		once, twice = once/2, twice/2
	}
	s.play(h, all, chosen, once)
	s.play(h, s.late, nil, twice)
	for _, body := range journaltest.Bodies() {
		if !s.insist(h, body.EventKind(), append(all, s.late...)) {
			t.Errorf("nothing was killed around an append of %s", body.EventKind())
		}
	}
	if s.inDoubt == 0 || s.told == 0 {
		t.Errorf("%d calls were in doubt, %d were told by their tool: the sample shows nothing", s.inDoubt, s.told)
	}
	t.Logf("%d of %d scenarios, %d points; %d calls in doubt, %d told by their tool, %d kills too late",
		len(bases), len(Scenarios()), len(all), s.inDoubt, s.told, s.missed)
}

// undisturbed plays scenarios without a kill: each of those with one run, and of the
// others so many that there is an append of each kind of event.
func (s *sample) undisturbed(h *Harness) []*Story {
	var alone, kin []Tale
	for _, sc := range Scenarios() {
		if sc.Family() {
			kin = append(kin, Tale{Scenario: sc})
		} else {
			alone = append(alone, Tale{Scenario: sc})
		}
	}
	if len(alone) < 14 || len(kin) < 2*families {
		s.t.Fatalf("only %d scenarios with one run, and %d with several", len(alone), len(kin))
	}
	s.r.Shuffle(len(kin), func(i, j int) { kin[i], kin[j] = kin[j], kin[i] })
	stories := s.unkilled(h, append(alone, kin[:families]...))
	for rest := kin[families:]; len(rest) > 0 && len(missing(stories)) > 0; rest = rest[1:] {
		stories = append(stories, s.unkilled(h, rest[:1])...)
	}
	return stories
}

func (s *sample) unkilled(h *Harness, tales []Tale) []*Story {
	var stories []*Story
	err := h.PlayAll(s.t.Context(), tales, jobs, func(story *Story) bool {
		s.report(story)
		stories = append(stories, story)
		return true
	})
	if err != nil || s.t.Failed() {
		s.t.Fatal("scenarios fail without a kill: ", err)
	}
	// They end in any order; the sample of a seed is always the same.
	slices.SortFunc(stories, func(a, b *Story) int { return strings.Compare(a.Scenario.Name, b.Scenario.Name) })
	return stories
}

// missing are the kinds of events of which no append of these stories has one.
func missing(stories []*Story) []toolcrib.Kind {
	have := map[toolcrib.Kind]bool{}
	for _, story := range stories {
		for _, step := range story.Steps {
			for _, p := range step.Points {
				for _, kind := range p.Kinds {
					have[kind] = true
				}
			}
		}
	}
	var none []toolcrib.Kind
	for _, body := range journaltest.Bodies() {
		if kind := body.EventKind(); !have[kind] && !slices.Contains(none, kind) && !lateKind(kind) {
			none = append(none, kind)
		}
	}
	return none
}

// lateKind reports whether events of a kind come only after a kill.
func lateKind(kind toolcrib.Kind) bool { return kind == journal.KindReconciled }

// tales makes a story of each kill, after those that were before.
func tales(s *Story, kills []Kill, want *Outcome) []Tale {
	if want == nil {
		want = &s.Outcome
	}
	var all []Tale
	for _, k := range kills {
		all = append(all, Tale{Scenario: s.Scenario, Kills: append(slices.Clone(s.Kills), k), Want: want})
	}
	return all
}

// dyingAt returns one of the stories with a kill at this point.
func (s *sample) dyingAt(from []Tale, label string) Tale {
	for _, i := range s.r.Perm(len(from)) {
		if from[i].Kills[0].Label == label {
			return from[i]
		}
	}
	s.t.Fatalf("no scenario has a point %s", label)
	return Tale{}
}

// covering adds to the chosen stories what it takes to kill around each kind of
// event that was not killed around yet.
func (s *sample) covering(from, chosen []Tale) []Tale {
	have := map[toolcrib.Kind]bool{}
	for _, i := range s.r.Perm(len(from)) {
		k := from[i].Kills[len(from[i].Kills)-1]
		isNew := slices.ContainsFunc(k.Kinds, func(kind toolcrib.Kind) bool { return !have[kind] && !s.covered[kind] })
		if !isNew || k.Delay > 0 {
			continue
		}
		for _, kind := range k.Kinds {
			have[kind] = true
		}
		chosen = append(chosen, from[i])
	}
	return chosen
}

// play plays n stories: the chosen ones, those that cover the kinds of events, and
// others as long as there is time.
func (s *sample) play(h *Harness, from, chosen []Tale, n int) {
	chosen = s.covering(from, chosen)
	must, played, began := len(chosen), 0, time.Now()
	for _, i := range s.r.Perm(len(from)) {
		if len(chosen) < n {
			chosen = append(chosen, from[i])
		}
	}
	see := func(enough func() bool) func(*Story) bool {
		return func(story *Story) bool {
			s.see(story, chosen)
			played++
			return !enough()
		}
	}
	// What has to be played is over before time counts: several are played at once,
	// and the last to end need not be the last that began.
	err := h.PlayAll(s.t.Context(), chosen[:must], jobs, see(func() bool { return false }))
	if err == nil {
		err = h.PlayAll(s.t.Context(), chosen[must:], jobs, see(func() bool { return time.Since(began) > patience }))
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Logf("%d stories with %d kills in %s", played, len(chosen[0].Kills), time.Since(began).Round(time.Millisecond))
}

// insist kills around an append of a kind of event that was not killed around yet:
// where things run at the same time, a point may have another event each time.
func (s *sample) insist(h *Harness, kind toolcrib.Kind, from []Tale) bool {
	const tries = 20
	for n, i := 0, s.r.Perm(len(from)); n < tries && len(i) > 0 && !s.covered[kind]; i = i[1:] {
		kills := from[i[0]].Kills
		if last := kills[len(kills)-1]; last.Delay > 0 || !slices.Contains(last.Kinds, kind) {
			continue
		}
		n++
		if err := h.PlayAll(s.t.Context(), from[i[0]:][:1], 1, func(story *Story) bool { s.see(story, from); return true }); err != nil {
			s.t.Fatal(err)
		}
	}
	return s.covered[kind]
}

func (s *sample) see(story *Story, from []Tale) {
	s.count(story)
	if !story.Reached() {
		return
	}
	for _, k := range story.Kills {
		if k.Server {
			continue
		}
		// In parallel calls a point may have another event than it had before.
		for _, p := range story.Steps[k.Step].Points {
			if p.Label != k.Label {
				continue
			}
			for _, kind := range p.Kinds {
				s.covered[kind] = true
			}
		}
	}
	if len(story.Problems) == 0 && len(story.Kills) == 1 {
		i := slices.IndexFunc(from, func(t Tale) bool { return t.Scenario == story.Scenario })
		s.late = append(s.late, taleOf(story, from[i].Want, s.r)...)
	}
}

func taleOf(story *Story, want *Outcome, r *rand.Rand) []Tale {
	return tales(story, story.Deaths(story.Kills[0].Step+1, r), want)
}

// count reports what went wrong in a story, and counts the rest.
func (s *sample) count(story *Story) {
	s.report(story)
	s.inDoubt += story.InDoubt
	s.told += story.Told
	if !story.Reached() {
		s.missed++
	}
}

func (s *sample) report(story *Story) {
	if len(story.Problems) > 0 {
		s.t.Errorf("%s:\n    %s", story, strings.Join(story.Problems, "\n    "))
	}
}

// A tool that says what is not so is found out: the test can fail.
func TestCrash_Bites(t *testing.T) {
	h := harness(t)
	sc := scenario(t, "file writes")
	base, err := h.Play(t.Context(), sc, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(lyingEnv, "1")
	story, err := h.Play(t.Context(), sc, []Kill{{Label: "effect/w2/1/after"}}, &base.Outcome)
	if err != nil {
		t.Fatal(err)
	}
	if !story.Reached() || !slices.ContainsFunc(story.Problems, func(p string) bool { return strings.Contains(p, "occurs 0 times") }) {
		t.Errorf("an edit that was made twice was not noticed: %q", story.Problems)
	}
}

// A run whose drivers die again and again before anything is achieved is given up,
// instead of killing one driver after another forever.
func TestCrash_WorkerLost(t *testing.T) {
	t.Parallel()
	h := harness(t)
	// In the first process append 1 is all up to the request; in each later one append
	// 1 is taken_up, 2 settles the lost request, 3 is the next.
	kills := []Kill{{Step: 0, Label: "append/1/after"}, {Step: 1, Label: "append/3/after"}, {Step: 2, Label: "append/3/after"}}
	story, err := h.Play(t.Context(), scenario(t, "answer"), kills, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !story.Reached() || story.Outcome.Status != toolcrib.StatusFailed || story.Outcome.Reason != toolcrib.StopWorkerLost {
		t.Errorf("%s: reached %v, %s, %s, %q", story, story.Reached(), story.Outcome.Status, story.Outcome.Reason, story.Problems)
	}
}
