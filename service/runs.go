package service

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// Statuses returns all statuses that a run may have.
func Statuses() []toolcrib.Status {
	return []toolcrib.Status{
		toolcrib.StatusQueued, toolcrib.StatusRunning, toolcrib.StatusWaitingForApproval, toolcrib.StatusWaitingForTool,
		toolcrib.StatusWaitingForInput, toolcrib.StatusWaitingForProvider, toolcrib.StatusCompleted, toolcrib.StatusFailed,
		toolcrib.StatusCancelled,
	}
}

// Words for runs beside the statuses themselves.
const (
	StatusInterrupted = "interrupted" // was cut off, and nobody drives it
	StatusParked      = "parked"      // waits for anything
)

// RunsQuery chooses runs.
type RunsQuery struct {
	store.Filter          // its Status follows from Words
	Words        []string // statuses, StatusInterrupted, StatusParked; empty = any
	Prompts      bool     // with the beginning of what each was asked
}

// StatusWords are what a list of runs may be narrowed by: statuses, and two words for some of them.
func StatusWords() (words []string) {
	for _, s := range Statuses() {
		words = append(words, string(s))
	}
	return append(words, StatusInterrupted, StatusParked)
}

// statuses are those that the words mean.
func (q *RunsQuery) statuses() (fit []toolcrib.Status, err error) {
	for _, word := range q.Words {
		n := len(fit)
		for _, s := range Statuses() {
			if string(s) == word || word == StatusInterrupted && s == toolcrib.StatusRunning ||
				word == StatusParked && s.Parked() {
				fit = append(fit, s)
			}
		}
		if len(fit) == n {
			return nil, unknownWord("status", word, StatusWords())
		}
	}
	return fit, nil
}

// fits reports whether a run is one of those that the words name: one that was cut off is
// interrupted and not running, though the store knows it as running.
func (q *RunsQuery) fits(v *Run) bool {
	switch {
	case v.Status != toolcrib.StatusRunning || len(q.Words) == 0:
		return true
	case v.Interrupted:
		return slices.Contains(q.Words, StatusInterrupted)
	}
	return slices.Contains(q.Words, string(v.Status))
}

// Runs returns the runs that fit and that who may see, newest first, without their traces,
// and the cursor of those after them; "" if there are no others.
func (s *Service) Runs(ctx context.Context, who toolcrib.Principal, q RunsQuery) (runs []Run, next string, err error) {
	if q.Status, err = q.statuses(); err != nil {
		return nil, "", err
	}
	if q.Parent != "" {
		above, err := s.find(ctx, who, string(q.Parent))
		if err == nil {
			q.Parent = above.ID
		} else if toolcrib.CodeOf(err) != toolcrib.CodeNotFound {
			return nil, "", err
		}
	}
	runs = []Run{}
	f, ok := seen(who, q.Filter)
	for ok {
		// A page of what is missing, so that its cursor is that of the last run shown.
		if f.Limit = store.Bound(q.Limit) - len(runs); f.Limit <= 0 {
			f.Limit = store.MaxLimit
		}
		page, err := s.store.Runs(ctx, f)
		if err != nil {
			return nil, "", err
		}
		for _, rec := range page.Runs {
			v := s.runOf(who, rec)
			switch {
			case !q.fits(&v):
				continue
			case len(runs) == store.Bound(q.Limit):
				return runs, next, nil
			case q.Prompts:
				if v.Prompt, err = s.prompt(ctx, v.ID); err != nil {
					return nil, "", err
				}
			}
			runs = append(runs, v)
		}
		if page.Next == "" {
			break
		}
		if f.Cursor = page.Next; len(runs) == store.Bound(q.Limit) && next == "" {
			next = page.Next // if one of the rest fits
		}
	}
	return runs, "", nil
}

// interrupted reports whether a run of these drivers was cut off: it was being driven, has
// not ended, and nobody holds it.
func (s *Service) interrupted(rec store.RunRecord) bool {
	return rec.Driver == s.Driver && rec.Status == toolcrib.StatusRunning && !s.Drivers.Driven(rec.ID)
}

// Run returns a whole run, found as by [Service.FindRun]; one whose content was pruned,
// as far as the store still knows it.
func (s *Service) Run(ctx context.Context, who toolcrib.Principal, name string) (Run, error) {
	rec, err := s.find(ctx, who, name)
	for tries := 0; err == nil; tries++ {
		if !rec.PrunedAt.IsZero() {
			v := s.around(ctx, who, rec)
			v.Trace = []TraceCall{}
			return v, nil
		}
		state, failed := agent.Load(ctx, s.store, rec.ID)
		if failed != nil {
			return Run{}, failed
		}
		// Its record and its journal are to be of one moment, unless it never rests.
		if state.Seq == rec.LastSeq || tries == maxRereads {
			return s.wholeOf(ctx, who, rec, state).shownTo(who), nil
		}
		rec, err = s.find(ctx, who, string(rec.ID))
	}
	return Run{}, err
}

// maxRereads is how many times more a run is read that continued between the reads of its record and its journal.
const maxRereads = 3

// FindRun finds a run that who may know of by its ID, the beginning or end of it, or as
// last: the newest run that no other run started. It comes without its trace, but with what
// is known of the runs around it.
func (s *Service) FindRun(ctx context.Context, who toolcrib.Principal, name string) (Run, error) {
	rec, err := s.find(ctx, who, name)
	if err != nil {
		return Run{}, err
	}
	return s.around(ctx, who, rec), nil
}

// around is a run with what is known of those around it; what cannot be read is not known.
func (s *Service) around(ctx context.Context, who toolcrib.Principal, rec store.RunRecord) Run {
	v := s.runOf(who, rec)
	v.Driven, v.Driver = !rec.Status.Ended() && s.Drivers.Driven(rec.ID), rec.Driver
	v.LastSeq, v.Beside = rec.LastSeq, rec.Beside
	if rec.Parent != "" {
		if above, err := s.store.Run(ctx, rec.Parent); err == nil {
			v.Caller = above.Agent
		}
		if top, err := s.top(ctx, rec); err == nil && !top.Status.Ended() {
			v.Top = top.ID
		}
	}
	if rec.Pending != nil && rec.Pending.Run != "" {
		below, err := s.store.Run(ctx, rec.Pending.Run)
		v.Decided = err == nil && !below.Status.Parked()
	}
	return v
}

// find is [Service.FindRun] for the service itself.
func (s *Service) find(ctx context.Context, who toolcrib.Principal, name string) (store.RunRecord, error) {
	if name == "last" {
		for rec, err := range s.eachRun(ctx, who, store.Filter{TopLevel: true}) {
			if err != nil || rec.Beside == "" {
				return rec, err
			}
		}
		return store.RunRecord{}, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no run yet")
	}
	rec, err := s.store.Run(ctx, toolcrib.RunID(name))
	if err == nil && !owns(who, &rec) {
		err = toolcrib.ErrNotFound
	}
	if errors.Is(err, toolcrib.ErrNotFound) && len(name) >= minPart {
		rec, err = s.runByPart(ctx, who, name)
	}
	if errors.Is(err, toolcrib.ErrNotFound) {
		return store.RunRecord{}, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no run %s", name)
	}
	return rec, err
}

// Transcript is what was said in a run, with the history that it began with.
func (s *Service) Transcript(ctx context.Context, who toolcrib.Principal, name string) ([]toolcrib.Message, error) {
	rec, err := s.find(ctx, who, name)
	if err != nil {
		return nil, err
	}
	state, err := agent.Load(ctx, s.store, rec.ID)
	if err != nil {
		return nil, err
	}
	return state.Messages, nil
}

// partsLooked is how many of the newest runs are looked at for one whose ID begins or ends
// with a part.
const partsLooked = 1 << 14

// runByPart finds the one run whose ID begins or ends with part, among the newest
// of those that who may know of.
func (s *Service) runByPart(ctx context.Context, who toolcrib.Principal, part string) (store.RunRecord, error) {
	start := "run_" + strings.TrimPrefix(part, "run_")
	var fit []store.RunRecord
	looked := 0
	for rec, err := range s.eachRun(ctx, who, store.Filter{}) {
		if err != nil {
			return store.RunRecord{}, err
		}
		if id := string(rec.ID); strings.HasPrefix(id, start) || strings.HasSuffix(id, part) {
			fit = append(fit, rec)
		}
		if looked++; looked == partsLooked {
			break
		}
	}
	switch len(fit) {
	case 0:
		return store.RunRecord{}, toolcrib.ErrNotFound
	case 1:
		return fit[0], nil
	}
	return store.RunRecord{}, ambiguous("run", part, fit, func(rec store.RunRecord) string { return string(rec.ID) })
}

// Story returns the whole journal of a run.
func (s *Service) Story(ctx context.Context, who toolcrib.Principal, run toolcrib.RunID) iter.Seq2[toolcrib.Event,
	error] {
	rec, err := s.find(ctx, who, string(run))
	if err != nil {
		return func(yield func(toolcrib.Event, error) bool) { yield(toolcrib.Event{}, err) }
	}
	return s.read(ctx, who, rec.ID, 0)
}

const promptColumns = 60

// startOf is the first event of a run; nil = its journal has another one, or cannot be read.
func (s *Service) startOf(ctx context.Context, run toolcrib.RunID) (*journal.RunStarted, error) {
	for e, err := range s.store.Read(ctx, run, 0) {
		start, _ := e.Body.(*journal.RunStarted)
		return start, err
	}
	return nil, nil
}

// prompt is the beginning of what a run was asked, in one line; "" = it was pruned.
func (s *Service) prompt(ctx context.Context, run toolcrib.RunID) (string, error) {
	b, err := s.startOf(ctx, run)
	switch {
	case errors.Is(err, store.ErrPruned) || errors.Is(err, toolcrib.ErrNotFound):
		return "", nil
	case b == nil:
		return "", err
	case b.Given != nil:
		return "tools call " + b.Given.Name, nil
	case b.Compact:
		return "/compact", nil
	case len(b.Input) == 0:
		return "", nil
	}
	return OneLine(b.Input[len(b.Input)-1].Text(), promptColumns), nil
}

// followEvery is how often a run of another process is looked at.
const followEvery = 250 * time.Millisecond

// Events calls write for the kept events of a run after a number, as clients see them;
// with follow until the run has ended.
func (s *Service) Events(
	ctx context.Context, who toolcrib.Principal, name string, after toolcrib.Seq, follow bool,
	write func(journal.Frame) error,
) error {
	found, err := s.find(ctx, who, name)
	if err != nil {
		return err
	}
	for {
		ended := false
		for e, err := range s.store.Read(ctx, found.ID, after) {
			if err != nil {
				return err
			}
			after = e.Seq
			if f, ok := journal.View(found.ID, e); ok {
				if err := write(s.shown(who, f)); err != nil {
					return err
				}
			}
			switch e.Body.(type) {
			case *journal.Done, *journal.Error:
				ended = true
			}
		}
		if !follow || ended {
			return nil
		}
		if rec, err := s.store.Run(ctx, found.ID); err != nil || rec.Status.Ended() && rec.LastSeq <= after {
			return err
		}
		if pause(ctx, followEvery) != nil {
			return ctx.Err()
		}
	}
}

const (
	minPart    = 2 // characters of an ID that may stand for it
	partsShown = 5 // IDs that an ambiguous part is said to fit
)

// ids makes IDs of which no two of a process begin with the same ten characters, for these
// are what people read and type. Those characters hold the millisecond and little more.
type ids struct {
	mu    sync.Mutex
	given map[string]bool // short IDs of the last few milliseconds
	at    time.Time       // when the oldest of them was made
}

func (g *ids) next(prefix string) string {
	const kept = time.Second // a clock may be set back by a little
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		id := agent.NewID(prefix)
		if now := time.Now(); g.given == nil || now.Sub(g.at) > kept {
			g.given, g.at = map[string]bool{}, now
		}
		if short := toolcrib.ShortID(id); !g.given[short] {
			g.given[short] = true
			return id
		}
		time.Sleep(time.Millisecond)
	}
}

// byPart returns the one of a list whose ID is part, or the only one whose ID begins with it;
// the prefix of such IDs may be left out.
func byPart[T any](what, prefix, part string, list []T, id func(T) string) (found T, err error) {
	begin := prefix + strings.TrimPrefix(part, prefix)
	var fit []T
	for _, one := range list {
		switch {
		case id(one) == begin:
			return one, nil
		case strings.HasPrefix(id(one), begin):
			fit = append(fit, one)
		}
	}
	switch {
	case len(fit) < 2 && len(begin) < len(prefix)+minPart:
		return found, badRequestf("the %s ID %q is too short; give at least %d characters after %s",
			what, part, minPart, prefix)
	case len(fit) == 1:
		return fit[0], nil
	case len(fit) == 0:
		return found, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no %s %s", what, part)
	}
	return found, ambiguous(what, part, fit, id)
}

// ambiguous is the error of a part of an ID that fits several.
func ambiguous[T any](what, part string, fit []T, id func(T) string) error {
	text := fmt.Sprintf("%s ID %s is ambiguous, give more of it", what, part)
	if what == "run" {
		text += " (its end is enough)"
	}
	text += "; it fits"
	for _, one := range fit[:min(len(fit), partsShown)] {
		text += "\n  " + id(one)
	}
	if more := len(fit) - partsShown; more > 0 {
		text += fmt.Sprintf("\n  and %d more", more)
	}
	return badRequestf("%s", text)
}

// OneLine is the beginning of a text as one line, of at most so many characters.
func OneLine(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}
