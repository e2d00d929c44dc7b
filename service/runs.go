package service

import (
	"context"
	"errors"
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

// Names for runs in a query, in addition to the statuses.
const (
	statusInterrupted = "interrupted" // was interrupted, and no process drives it
	StatusParked      = "parked"      // waits for a person, a client, or a provider
)

// RunsQuery chooses runs.
type RunsQuery struct {
	store.Filter          // its Status is set from Statuses
	Statuses     []string // names as of [StatusNames]; if empty, any status
	Prompts      bool     // include the beginning of the prompts
}

// StatusNames returns the names by which runs can be chosen: the statuses, and two names for some of them.
func StatusNames() (names []string) {
	for _, s := range Statuses() {
		names = append(names, string(s))
	}
	return append(names, statusInterrupted, StatusParked)
}

// statuses returns the statuses that the names mean.
func (q *RunsQuery) statuses() (fit []toolcrib.Status, err error) {
	for _, name := range q.Statuses {
		n := len(fit)
		for _, s := range Statuses() {
			if string(s) == name || name == statusInterrupted && s == toolcrib.StatusRunning ||
				name == StatusParked && s.Parked() {
				fit = append(fit, s)
			}
		}
		if len(fit) == n {
			return nil, env.UnknownValue("status", name, StatusNames())
		}
	}
	return fit, nil
}

// fits reports whether a run is among those that the names choose. An interrupted run is not running, although that is
// its status in the store.
func (q *RunsQuery) fits(v *Run) bool {
	switch {
	case v.Status != toolcrib.StatusRunning || len(q.Statuses) == 0:
		return true
	case v.Interrupted:
		return slices.Contains(q.Statuses, statusInterrupted)
	}
	return slices.Contains(q.Statuses, string(v.Status))
}

// Runs returns the runs that fit and that who may see, newest first, without their traces. next is the cursor of the
// following runs, or "" if there are no more.
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
		// The page has no more runs than are missing, so that its cursor is that of the last run shown.
		if f.Limit = store.Bound(q.Limit) - len(runs); f.Limit <= 0 {
			f.Limit = store.MaxLimit
		}
		page, err := s.Env.Store.Runs(ctx, f)
		if err != nil {
			return nil, "", err
		}
		for _, v := range s.runsOf(ctx, who, page.Runs) {
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
			next = page.Next // used if one of the following runs fits
		}
	}
	return runs, "", nil
}

// runsOf returns runs without their traces. Of these drivers, one that is running according to its record and that no
// process drives was interrupted.
func (s *Service) runsOf(ctx context.Context, who toolcrib.Principal, recs []store.RunRecord) []Run {
	runs := make([]Run, len(recs))
	var running []toolcrib.RunID
	for i, rec := range recs {
		runs[i] = s.runOf(who, rec)
		if s.interruptible(&rec) {
			running = append(running, rec.ID)
		}
	}
	driven := s.Drivers.Processes(ctx, running...)
	for i := range recs {
		runs[i].Interrupted = s.interruptible(&recs[i]) && driven[recs[i].ID] == ""
	}
	s.findSites(ctx, recs, runs)
	return runs
}

// findSites sets which runs wait for a server with their workspaces.
func (s *Service) findSites(ctx context.Context, recs []store.RunRecord, runs []Run) {
	if s.Env.Config.Database.IsEmpty() { // there is one folder of workspaces
		return
	}
	var away []toolcrib.RunID
	here := ""
	if s.Env.Driver == env.DriverServer { // a server reaches its own
		here, _ = s.Env.Site()
	}
	for i := range recs {
		if rec := &recs[i]; rec.Driver == env.DriverServer && rec.Site != "" && rec.Site != here && !rec.Status.Ended() {
			away = append(away, rec.ID)
		}
	}
	if len(away) == 0 {
		return
	}
	servers, err := s.Drivers.Servers(ctx)
	if err != nil {
		return
	}
	driven := s.Drivers.Processes(ctx, away...)
	for i := range recs {
		rec := &recs[i]
		runs[i].Unreachable = slices.Contains(away, rec.ID) && driven[rec.ID] == "" &&
			!slices.ContainsFunc(servers, func(o worker.Server) bool { return o.Site == rec.Site })
	}
}

// interruptible reports whether a run of these drivers was interrupted if no process drives it.
func (s *Service) interruptible(rec *store.RunRecord) bool {
	return rec.Driver == s.Env.Driver && rec.Status == toolcrib.StatusRunning
}

// Run returns a run with its trace, found as by [Service.FindRun]. If its content was pruned, it returns what the store
// has kept.
func (s *Service) Run(ctx context.Context, who toolcrib.Principal, name string) (Run, error) {
	rec, err := s.Env.Find(ctx, who, name)
	for tries := 0; err == nil; tries++ {
		if !rec.PrunedAt.IsZero() {
			v := s.withRelated(ctx, who, rec)
			v.Trace = []api.TraceCall{}
			return v, nil
		}
		state, failed := agent.Load(ctx, s.Env.Store, rec.ID)
		if failed != nil {
			return Run{}, failed
		}
		// The record and the journal should be of the same moment. If the run never rests, they are not.
		if state.Seq == rec.LastSeq || tries == maxRereads {
			return shownTo(who, s.wholeOf(ctx, who, rec, state)), nil
		}
		rec, err = s.Env.Find(ctx, who, string(rec.ID))
	}
	return Run{}, err
}

// maxRereads bounds how often a run is read again because it continued between the reads of its record and its journal.
const maxRereads = 3

// FindRun finds a run by its ID, the beginning or end of its ID, or as last: the newest run that no other run started.
// The run has no trace, but fields about the runs above and below it.
func (s *Service) FindRun(ctx context.Context, who toolcrib.Principal, name string) (Run, error) {
	rec, err := s.Env.Find(ctx, who, name)
	if err != nil {
		return Run{}, err
	}
	return s.withRelated(ctx, who, rec), nil
}

// withRelated returns a run with fields about the runs above and below it. They are empty if those cannot be read.
func (s *Service) withRelated(ctx context.Context, who toolcrib.Principal, rec store.RunRecord) Run {
	v := s.runOf(who, rec)
	v.Driven, v.Driver = !rec.Status.Ended() && s.Drivers.Driven(ctx, rec.ID), rec.Driver
	v.Interrupted = s.interruptible(&rec) && !v.Driven
	of := []Run{v}
	s.findSites(ctx, []store.RunRecord{rec}, of)
	v = of[0]
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

// Transcript returns the messages of a run, including the history that it began with.
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

const promptColumns = 60

// startOf returns the first event of a run. It is nil if the journal begins with another event or cannot be read.
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

// prompt returns the beginning of the prompt of a run in one line, or "" if it was pruned.
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

// followEvery is how often [Service.Events] looks at a run of another process.
const followEvery = 250 * time.Millisecond

// Events calls write for the kept events of a run after a number, as clients see them. If follow is set, it does so
// until the run has ended.
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

// ids generates IDs. No two of a process begin with the same ten characters, because people read and type these. They
// contain the millisecond and little more.
type ids struct {
	mu    sync.Mutex
	given map[string]bool // short IDs of the last few milliseconds
	at    time.Time       // time of the oldest of them
}

func (g *ids) next(prefix string) string {
	const kept = time.Second // a clock may be set back a little
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

// OneLine returns the beginning of a text in one line, of at most so many characters.
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

// OpenRuns returns the number of runs that have not ended, by status.
func (s *Service) OpenRuns(ctx context.Context) (map[toolcrib.Status]int64, error) {
	return s.Env.Store.OpenRuns(ctx)
}

// endRuns denies the runs that fit and have not ended, or cancels them, because their user or token is no longer valid,
// as why says. A denied run that is being driven ends with its next call.
func (s *Service) endRuns(ctx context.Context, who toolcrib.Principal, f store.Filter, why string, cancel bool) error {
	var failed []error
	// Runs below are newer than those above, and end before them.
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

// denyHere ends a run, unless a process drives it: then its next call ends it.
func (s *Service) denyHere(ctx context.Context, rec store.RunRecord, why string) error {
	leave, err := s.Drivers.Take(ctx, rec.ID, nil)
	if errors.Is(err, store.ErrLeased) {
		return nil
	} else if err != nil {
		return err
	}
	defer leave()
	r, err := s.runner(rec)
	if err == nil {
		_, err = r.Deny(ctx, rec.ID, why)
	}
	return err
}
