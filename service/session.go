package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// Session is a session that runs join.
type Session struct {
	Name string            // requested name, or ""
	Info store.SessionInfo // if the ID is "", it is created with its first run

	From toolcrib.RunID // run without a session whose transcript a new session begins with, or ""
}

// joinSession finds the session of a run. A busy session is a conflict. A new session is created with its first run.
func (s *Service) joinSession(ctx context.Context, who toolcrib.Principal, name string) (*Session, error) {
	joined, err := s.EnterSession(ctx, who, name)
	if err == nil && joined.Info.Busy() {
		err = s.sessionBusy(ctx, &joined.Info)
	}
	if err != nil {
		return nil, err
	}
	return joined, nil
}

// maxLooked bounds the runs that [LastConversation] looks at.
const maxLooked = 50

// LastConversation returns the session of the newest run of who. If that run has none, the session is a new one that
// begins with its transcript.
func (s *Service) LastConversation(ctx context.Context, who toolcrib.Principal) (*Session, error) {
	return LastConversation(ctx, who, s, func(run toolcrib.RunID) string { return s.toContinue(ctx, run) })
}

// LastConversation is [Service.LastConversation] for any store of runs and sessions. onward returns the hint how to
// continue a run.
func LastConversation(ctx context.Context, who toolcrib.Principal, of interface {
	Runs(ctx context.Context, who toolcrib.Principal, q RunsQuery) (runs []Run, next string, err error)
	EnterSession(ctx context.Context, who toolcrib.Principal, name string) (*Session, error)
}, onward func(toolcrib.RunID) string,
) (*Session, error) {
	runs, _, err := of.Runs(ctx, who, RunsQuery{Filter: store.Filter{User: who.User, TopLevel: true, Limit: maxLooked}})
	if err != nil {
		return nil, err
	}
	for _, run := range runs {
		switch {
		case run.Model == "": // a run of one call
		case run.SessionID != "":
			return of.EnterSession(ctx, who, string(run.SessionID))
		case !run.Status.Ended():
			return nil, toolcrib.Errorf(toolcrib.CodeConflict, "the last run, %s, has not ended; %s", run.ID,
				onward(run.ID))
		default:
			return &Session{From: run.ID}, nil
		}
	}
	return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no run to continue yet")
}

// EnterSession finds a session for a conversation. The session may be busy, because the person can decide what it waits
// for.
func (s *Service) EnterSession(ctx context.Context, who toolcrib.Principal, name string) (*Session, error) {
	if name == "last" {
		info, err := s.Session(ctx, who, name)
		if toolcrib.CodeOf(err) == toolcrib.CodeNotFound {
			err = toolcrib.Errorf(toolcrib.CodeNotFound, "%v; `toolcrib run --session NAME` begins one", err)
		}
		return &Session{Name: cmp.Or(info.Name, string(info.ID)), Info: info}, err
	}
	info, err := s.Env.Store.Session(ctx, who.User, name)
	if errors.Is(err, toolcrib.ErrNotFound) && strings.HasPrefix(name, store.SessionPrefix) {
		info, err = s.sessionByPart(ctx, who, name)
		if err == nil && info.User != who.User || toolcrib.CodeOf(err) == toolcrib.CodeNotFound {
			err = toolcrib.ErrNotFound
		}
	}
	if errors.Is(err, toolcrib.ErrNotFound) {
		if strings.HasPrefix(name, store.SessionPrefix) {
			return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no session %s, and no name begins with %s", name,
				store.SessionPrefix)
		}
		if err := store.CheckSessionName(name); err != nil {
			return nil, env.BadRequestf("session: %v", err)
		}
		if err := s.Env.CheckSecrets(name); err != nil {
			return nil, err
		}
		return &Session{Name: name}, nil
	}
	if err == nil {
		err = s.joinable(ctx, who, name, &info)
	}
	return &Session{Name: name, Info: info}, err
}

// sessionBusy returns an error that names the run that keeps a session busy, and what to do about it. A run that a
// process drives ends by itself, or can be cancelled.
func (s *Service) sessionBusy(ctx context.Context, info *store.SessionInfo) error {
	run := info.LastRun
	if by := s.Drivers.Processes(ctx, run)[run]; info.Status == toolcrib.StatusRunning && by != "" {
		return toolcrib.Errorf(toolcrib.CodeConflict, "session %s is in use: %s is running run %s; wait until it ends, or cancel it: %s runs cancel %s",
			info.ID, by, run, s.Env.Self, run)
	}
	busy := &store.SessionBusyError{Session: info.ID, Run: run, Status: info.Status}
	if s.Env.Driver == env.DriverServer { // the client has no command line here
		return toolcrib.Errorf(toolcrib.CodeConflict, "%v", busy)
	}
	return toolcrib.Errorf(toolcrib.CodeConflict, "%v\n%s", busy, s.toContinue(ctx, run))
}

func (s *Service) toContinue(ctx context.Context, run toolcrib.RunID) string {
	rec, _ := s.Env.Store.Run(ctx, run) // it was just read
	return ToContinue(rec.Driver, run, s.Env.Self)
}

// ToContinue returns the hint how to continue a run that no process drives. self begins its commands. A run of a server
// is not resumed on the command line of its data folder.
func ToContinue(driver string, run toolcrib.RunID, self string) string {
	if driver == env.DriverServer {
		return fmt.Sprintf("it belongs to a server, which continues it by itself; if none runs, `%s serve` starts one", self)
	}
	return fmt.Sprintf("to continue it: %s runs resume %s", self, run)
}

// Resumer returns the beginning of commands that resume a run, self of all others. A run of a server is resumed by the
// server, which the user names.
func Resumer(driver, self string) string {
	if driver == env.DriverServer {
		return "toolcrib --server URL"
	}
	return self
}

// into adds the run of a task to the session: it continues the conversation. A given call does not continue it.
func (p *Prepared) into(ctx context.Context, task *agent.Task) error {
	s, j := p.s, p.Session
	if j.Info.ID == "" {
		info, err := s.Env.Store.NewSession(ctx, p.Who.User, j.Name)
		if errors.Is(err, toolcrib.ErrConflict) { // another process was quicker
			if info, err = s.Env.Store.Session(ctx, p.Who.User, j.Name); err == nil {
				err = s.joinable(ctx, p.Who, j.Name, &info)
			}
		}
		if err != nil {
			return err
		}
		j.Info = info
	}
	if task.Given != nil {
		task.Beside = j.Info.ID
		return nil
	}
	task.Session = j.Info.ID
	run := j.From
	if run == "" {
		last, err := store.LastRun(ctx, s.Env.Store, p.Who.User, j.Info.ID)
		if errors.Is(err, toolcrib.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		run = last.ID
	}
	state, err := agent.Load(ctx, s.Env.Store, run)
	if errors.Is(err, store.ErrPruned) {
		return toolcrib.Errorf(toolcrib.CodeConflict, "session %s cannot be continued: its transcript was pruned; start another one",
			cmp.Or(j.Name, string(j.Info.ID)))
	}
	if err != nil {
		return err
	}
	if s.Env.Driver == env.DriverServer { // on the command line each run names its own
		if err := s.Env.CheckSite(run, state.Start.Site); err != nil {
			return fmt.Errorf("session %s: %w; or begin another session", cmp.Or(j.Name, string(j.Info.ID)), err)
		}
	}
	task.After(state)
	return nil
}

// SessionRuns returns the runs of a session, oldest first.
func (s *Service) SessionRuns(ctx context.Context, who toolcrib.Principal, id toolcrib.SessionID) ([]Run, error) {
	info, err := s.Session(ctx, who, string(id))
	if err != nil {
		return nil, err
	}
	list, err := store.SessionRuns(ctx, s.Env.Store, info.User, info.ID)
	return s.runsOf(ctx, who, list), err
}

// LastRun returns the newest run of a session that who may see.
func (s *Service) LastRun(ctx context.Context, who toolcrib.Principal, id toolcrib.SessionID) (Run, error) {
	info, err := s.Session(ctx, who, string(id))
	if err != nil {
		return Run{}, err
	}
	rec, err := store.LastRun(ctx, s.Env.Store, info.User, info.ID)
	if err != nil {
		return Run{}, err
	}
	return s.withRelated(ctx, who, rec), nil
}

// Again returns the task that sends the last message of the session again, as if there had been no answer. The effects
// of the turn are not undone, and are not repeated without approval.
func (p *Prepared) Again(ctx context.Context) (task agent.Task, err error) {
	s, none := p.s, toolcrib.Errorf(toolcrib.CodeConflict, "there is no message to send once more")
	if p.Session == nil || p.Session.Info.LastRun == "" {
		return task, none
	}
	rec, err := s.Env.Find(ctx, p.Who, string(p.Session.Info.LastRun))
	if err != nil {
		return task, err
	}
	state, err := agent.Load(ctx, s.Env.Store, rec.ID)
	if errors.Is(err, store.ErrPruned) {
		return task, toolcrib.Errorf(toolcrib.CodeConflict, "what was said last was pruned")
	}
	if err != nil {
		return task, err
	}
	in := state.Start.Input
	if len(in) == 0 || state.Start.Compact || in[len(in)-1].Role != toolcrib.RoleUser {
		return task, none
	}
	last := in[len(in)-1]
	task = agent.Task{
		Session: p.Session.Info.ID, Prompt: last.Text(), History: in[:len(in)-1], Taint: state.Start.Taint,
		Hosted: agent.Hosted{Canary: state.Start.Canary, Before: state.SessionUse()},
	}
	if task.Ran, err = (&agent.Runner{Options: agent.Options{Journal: s.Env.Store}}).Ran(ctx, state); err != nil {
		return task, err
	}
	for _, part := range last.Parts {
		if part.File == nil {
			continue
		}
		file, err := s.file(ctx, part.File)
		if err != nil {
			return task, err
		}
		task.Files = append(task.Files, file)
	}
	return task, nil
}

// file reads a file from the content store.
func (s *Service) file(ctx context.Context, f *toolcrib.File) (toolcrib.OutputFile, error) {
	run, ref, _ := strings.Cut(f.Ref, "/")
	data, _, err := s.Env.Store.Range(ctx, toolcrib.RunID(run), ref, 0, toolcrib.MaxFileBytes)
	return toolcrib.OutputFile{MediaType: f.MediaType, Name: f.Name, Data: data}, err
}

// Sessions returns a page of the sessions that fit and that who may see. An access token sees those whose runs it has
// all started.
func (s *Service) Sessions(
	ctx context.Context, who toolcrib.Principal, f store.SessionFilter,
) (store.SessionPage, error) {
	runs, ok := env.Seen(who, store.Filter{User: f.User})
	if !ok {
		return store.SessionPage{}, nil
	}
	f.User, f.Token = runs.User, runs.Token
	return s.Env.Store.Sessions(ctx, f)
}

// Session finds a session by its ID, the name that its user gave it, or as last: the session with the newest run of
// who. Administrators find the sessions of other users by ID.
func (s *Service) Session(ctx context.Context, who toolcrib.Principal, name string) (store.SessionInfo, error) {
	if name == "last" {
		page, err := s.Sessions(ctx, who, store.SessionFilter{User: who.User, Limit: 1})
		if err == nil && len(page.Sessions) == 0 {
			err = toolcrib.Errorf(toolcrib.CodeNotFound, "there is no session yet")
		}
		if err != nil {
			return store.SessionInfo{}, err
		}
		return page.Sessions[0], nil
	}
	info, err := store.SessionInfo{}, toolcrib.ErrNotFound
	if who.User != "" {
		info, err = s.Env.Store.Session(ctx, who.User, name)
	}
	if errors.Is(err, toolcrib.ErrNotFound) && env.Admin(who) {
		if info, err = s.Env.Store.Session(ctx, "", name); err == nil && string(info.ID) != name {
			err = toolcrib.ErrNotFound // names of sessions belong to their users
		}
	}
	if err == nil {
		var mine bool
		if mine, err = s.ownSession(ctx, who, &info); err == nil && !mine {
			err = toolcrib.ErrNotFound
		}
	}
	if errors.Is(err, toolcrib.ErrNotFound) {
		return s.sessionByPart(ctx, who, name)
	}
	return info, err
}

// sessionByPart finds a session that who may see by the beginning of its ID.
func (s *Service) sessionByPart(ctx context.Context, who toolcrib.Principal, part string) (store.SessionInfo, error) {
	begin := store.SessionPrefix + strings.TrimPrefix(part, store.SessionPrefix)
	var fit []store.SessionInfo
	f := store.SessionFilter{Limit: store.MaxLimit}
	for range env.PartsLooked / store.MaxLimit {
		page, err := s.Sessions(ctx, who, f)
		if err != nil {
			return store.SessionInfo{}, err
		}
		for _, info := range page.Sessions {
			if strings.HasPrefix(string(info.ID), begin) {
				fit = append(fit, info)
			}
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
	}
	id := func(i store.SessionInfo) string { return string(i.ID) }
	info, err := env.ByPart("session", store.SessionPrefix, part, fit, id)
	if err != nil && len(fit) == 0 {
		err = toolcrib.Errorf(toolcrib.CodeNotFound, "there is no session %s", part)
	}
	return info, err
}

// ownSession reports whether the access token of who has started all runs of a session, and there is at least one. A
// run that joins the session continues what others have said. Without a token it returns true.
func (s *Service) ownSession(ctx context.Context, who toolcrib.Principal, info *store.SessionInfo) (bool, error) {
	if who.Token == "" {
		return true, nil
	}
	for rec, err := range s.Env.Each(ctx, store.Filter{User: info.User, Session: info.ID, TopLevel: true}) {
		if err != nil || rec.Token != who.Token {
			return false, err
		}
	}
	return info.LastRun != "", nil
}

// joinable returns an error if who has an access token that did not begin the session. A session without runs is empty,
// so every token may join it.
func (s *Service) joinable(ctx context.Context, who toolcrib.Principal, name string, info *store.SessionInfo) error {
	own, err := s.ownSession(ctx, who, info)
	if err == nil && !own && info.LastRun != "" {
		err = toolcrib.Errorf(toolcrib.CodeConflict, "session %s was not started with this access token; choose another name", name)
	}
	return err
}
