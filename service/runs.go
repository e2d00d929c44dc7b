package service

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/worker"
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
	statusInterrupted = "interrupted" // was cut off, and nobody drives it
	StatusParked      = "parked"      // waits for anything
)

// RunsQuery chooses runs.
type RunsQuery struct {
	store.Filter          // its Status follows from Words
	Words        []string // statuses, statusInterrupted, StatusParked; empty = any
	Prompts      bool     // with the beginning of what each was asked
}

// StatusWords are what a list of runs may be narrowed by: statuses, and two words for some of them.
func StatusWords() (words []string) {
	for _, s := range Statuses() {
		words = append(words, string(s))
	}
	return append(words, statusInterrupted, StatusParked)
}

// statuses are those that the words mean.
func (q *RunsQuery) statuses() (fit []toolcrib.Status, err error) {
	for _, word := range q.Words {
		n := len(fit)
		for _, s := range Statuses() {
			if string(s) == word || word == statusInterrupted && s == toolcrib.StatusRunning ||
				word == StatusParked && s.Parked() {
				fit = append(fit, s)
			}
		}
		if len(fit) == n {
			return nil, env.UnknownWord("status", word, StatusWords())
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
		return slices.Contains(q.Words, statusInterrupted)
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
		above, err := s.Env.Find(ctx, who, string(q.Parent))
		if err == nil {
			q.Parent = above.ID
		} else if toolcrib.CodeOf(err) != toolcrib.CodeNotFound {
			return nil, "", err
		}
	}
	runs = []Run{}
	f, ok := env.Seen(who, q.Filter)
	for ok {
		// A page of what is missing, so that its cursor is that of the last run shown.
		if f.Limit = store.Bound(q.Limit) - len(runs); f.Limit <= 0 {
			f.Limit = store.MaxLimit
		}
		page, err := s.Env.Store.Runs(ctx, f)
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
	return rec.Driver == s.Env.Driver && rec.Status == toolcrib.StatusRunning && !s.Drivers.Driven(rec.ID)
}

// Run returns a whole run, found as by [Service.FindRun]; one whose content was pruned,
// as far as the store still knows it.
func (s *Service) Run(ctx context.Context, who toolcrib.Principal, name string) (Run, error) {
	rec, err := s.Env.Find(ctx, who, name)
	for tries := 0; err == nil; tries++ {
		if !rec.PrunedAt.IsZero() {
			v := s.around(ctx, who, rec)
			v.Trace = []api.TraceCall{}
			return v, nil
		}
		state, failed := agent.Load(ctx, s.Env.Store, rec.ID)
		if failed != nil {
			return Run{}, failed
		}
		// Its record and its journal are to be of one moment, unless it never rests.
		if state.Seq == rec.LastSeq || tries == maxRereads {
			return shownTo(who, s.wholeOf(ctx, who, rec, state)), nil
		}
		rec, err = s.Env.Find(ctx, who, string(rec.ID))
	}
	return Run{}, err
}

// maxRereads is how many times more a run is read that continued between the reads of its record and its journal.
const maxRereads = 3

// FindRun finds a run that who may know of by its ID, the beginning or end of it, or as last: the newest run that
// no other run started. It comes without its trace, but with what is known of the runs around it.
func (s *Service) FindRun(ctx context.Context, who toolcrib.Principal, name string) (Run, error) {
	rec, err := s.Env.Find(ctx, who, name)
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
		if above, err := s.Env.Store.Run(ctx, rec.Parent); err == nil {
			v.Caller = above.Agent
		}
		if top, err := s.Env.Top(ctx, rec); err == nil && !top.Status.Ended() {
			v.Top = top.ID
		}
	}
	if rec.Pending != nil && rec.Pending.Run != "" {
		below, err := s.Env.Store.Run(ctx, rec.Pending.Run)
		v.Decided = err == nil && !below.Status.Parked()
	}
	return v
}

// Transcript is what was said in a run, with the history that it began with.
func (s *Service) Transcript(ctx context.Context, who toolcrib.Principal, name string) ([]toolcrib.Message, error) {
	rec, err := s.Env.Find(ctx, who, name)
	if err != nil {
		return nil, err
	}
	state, err := agent.Load(ctx, s.Env.Store, rec.ID)
	if err != nil {
		return nil, err
	}
	return state.Messages, nil
}

// Story returns the whole journal of a run.
func (s *Service) Story(ctx context.Context, who toolcrib.Principal, run toolcrib.RunID) iter.Seq2[toolcrib.Event,
	error] {
	rec, err := s.Env.Find(ctx, who, string(run))
	if err != nil {
		return func(yield func(toolcrib.Event, error) bool) { yield(toolcrib.Event{}, err) }
	}
	return s.Env.ReadRun(ctx, who, rec.ID, 0)
}

const promptColumns = 60

// startOf is the first event of a run; nil = its journal has another one, or cannot be read.
func (s *Service) startOf(ctx context.Context, run toolcrib.RunID) (*journal.RunStarted, error) {
	for e, err := range s.Env.Store.Read(ctx, run, 0) {
		start, _ := e.Body.(*journal.RunStarted)
		return start, err
	}
	return nil, nil
}

// RequestOf returns [journal.RunStarted.Asked] of a run.
func (s *Service) RequestOf(ctx context.Context, who toolcrib.Principal, run toolcrib.RunID) (string, error) {
	rec, err := s.Env.Find(ctx, who, string(run))
	if err != nil {
		return "", err
	}
	start, err := s.startOf(ctx, rec.ID)
	if err != nil || start == nil {
		return "", err
	}
	return start.Asked, nil
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
	found, err := s.Env.Find(ctx, who, name)
	if err != nil {
		return err
	}
	for {
		ended := false
		for e, err := range s.Env.Store.Read(ctx, found.ID, after) {
			if err != nil {
				return err
			}
			after = e.Seq
			if f, ok := journal.View(found.ID, e); ok {
				if err := write(s.Env.Shown(who, f)); err != nil {
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
		if rec, err := s.Env.Store.Run(ctx, found.ID); err != nil || rec.Status.Ended() && rec.LastSeq <= after {
			return err
		}
		if worker.Pause(ctx, followEvery) != nil {
			return ctx.Err()
		}
	}
}

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

// OneLine is the beginning of a text as one line, of at most so many characters.
func OneLine(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

// Reachable returns nil if the store answers, and can be written.
func (s *Service) Reachable(ctx context.Context) error {
	if _, err := s.Env.Store.Runs(ctx, store.Filter{Limit: 1}); err != nil {
		return err
	}
	return s.Env.Store.Writable(ctx)
}

// OpenRuns is how many runs have not ended, by status.
func (s *Service) OpenRuns(ctx context.Context) (map[toolcrib.Status]int64, error) {
	return s.Env.Store.OpenRuns(ctx)
}

// endRuns ends the runs that fit and have not ended, or cancels them: their user or token no longer
// counts, as why says. One that is driven ends with its next call.
func (s *Service) endRuns(ctx context.Context, who toolcrib.Principal, f store.Filter, why string, cancel bool) error {
	var failed []error
	// Runs below others are newer than those, and end before them.
	f.TopLevel, f.Status = cancel, slices.DeleteFunc(Statuses(), toolcrib.Status.Ended)
	for rec, err := range s.Env.Each(ctx, f) {
		switch {
		case err != nil:
			return err
		case cancel:
			_, err = s.Cancel(ctx, who, string(rec.ID))
		default:
			err = s.denyHere(ctx, rec, why)
		}
		if err != nil && !errors.Is(err, toolcrib.ErrConflict) { // it may have ended meanwhile
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// denyHere ends a run unless somebody drives it: then its next call ends it.
func (s *Service) denyHere(ctx context.Context, rec store.RunRecord, why string) error {
	leave, driven := s.Drivers.Take(rec.ID)
	if driven != nil {
		return nil
	}
	defer leave()
	r, err := s.runner(rec)
	if err == nil {
		_, err = r.Deny(ctx, rec.ID, why)
	}
	return err
}
