package crash

import (
	"flag"
	"runtime"
	"strings"
	"testing"
)

var (
	sweep = flag.String("crash.sweep", "", "sweep over every point, with second kills: none, sparse (after appends and "+
		"around effects; some of them, by the seed, where runs start one another) or all")
	only      = flag.String("crash.scenario", "", "sweep over scenarios whose name has this in it")
	sweepJobs = flag.Int("crash.jobs", runtime.NumCPU(), "stories of a sweep at a time")
)

// sparseFamily bounds the stories with two kills of a scenario in which runs start one
// another: there are thousands of them. Sparse pairs are so many of these, by the seed.
const sparseFamily = 150

// wanted reports whether a sweep combines a kill with another one.
func wanted(k Kill) bool {
	after, effect := strings.HasSuffix(k.Label, "/after"), strings.HasPrefix(k.Label, "effect/")
	return *sweep == "all" || *sweep == "sparse" && (after || effect && strings.HasSuffix(k.Label, "/before"))
}

// TestCrash_Sweep plays each scenario with a kill at every point, and with a second kill
// at points of the processes that follow:
//
//	go test ./internal/crash -run Sweep -v -timeout 0 -crash.sweep=sparse [-crash.scenario=NAME] [-crash.seed=N]
func TestCrash_Sweep(t *testing.T) {
	if *sweep == "" {
		t.Skip("SKIP: takes hours; -crash.sweep=none|sparse|all")
	}
	if *sweep != "none" && *sweep != "sparse" && *sweep != "all" {
		t.Fatalf("unknown -crash.sweep %q (valid: none, sparse, all)", *sweep)
	}
	h := harness(t)
	for _, sc := range Scenarios() {
		if strings.Contains(sc.Name, *only) {
			t.Run(sc.Name, func(t *testing.T) { sweepOver(t, h, sc) })
		}
	}
}

func sweepOver(t *testing.T, h *Harness, sc *Scenario) {
	s := newSample(t)
	base := s.unkilled(h, []Tale{{Scenario: sc}})[0]
	singles := tales(base, base.Deaths(0, s.r), nil)
	var doubles []Tale
	play := func(all []Tale) {
		err := h.PlayAll(t.Context(), all, *sweepJobs, func(story *Story) bool {
			s.count(story)
			if first := story.Kills[0]; len(story.Kills) == 1 && len(story.Problems) == 0 && story.Reached() && wanted(first) {
				for _, k := range story.Deaths(first.Step+1, s.r) {
					if wanted(k) {
						doubles = append(doubles, Tale{sc, []Kill{first, k}, &base.Outcome})
					}
				}
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	play(singles)
	if *sweep == "sparse" && sc.Family() && len(doubles) > sparseFamily {
		s.r.Shuffle(len(doubles), func(i, j int) { doubles[i], doubles[j] = doubles[j], doubles[i] })
		doubles = doubles[:sparseFamily]
	}
	play(doubles)
	t.Logf("%d stories with one kill, %d with two, %d kills too late; %d calls in doubt, %d told by their tool",
		len(singles), len(doubles), s.missed, s.inDoubt, s.told)
}
