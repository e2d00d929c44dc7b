package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/replay"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// checked is the result of a check, with what is not valid.
func checked(run toolcrib.RunID, found any, err error) api.Checked {
	if err != nil {
		return api.Checked{Run: run, Detail: err.Error()}
	}
	return api.Checked{Run: run, OK: true, Found: found, Detail: FoundText(found)}
}

// FoundText describes the result of a check.
func FoundText(found any) string {
	switch f := found.(type) {
	case store.Verified:
		sealed := "sealed to its end"
		if later := f.Events - int(f.Sealed); later > 0 {
			sealed = fmt.Sprintf("sealed to event %d (%d later: they cannot be changed, but lost as by a loss of power)",
				f.Sealed, later)
		}
		return fmt.Sprintf("%s, %s, %s%s", guard.Count(f.Events, "event"), guard.Count(f.Anchors, "anchor"), sealed,
			prunedText(f.Pruned))
	case store.VerifiedAll:
		text := fmt.Sprintf("%s, %s%s; removed before: %s; the system journal: %s",
			guard.Count(f.Runs, "run"), guard.Count(f.Events, "event"), prunedText(f.Pruned),
			guard.Count(f.Removed, "run"), guard.Count(f.System.Events, "event"))
		if f.System.Adopted > 0 {
			text += fmt.Sprintf(", of which those before event %d were accepted as they were", f.System.Adopted)
		}
		return text
	case store.Head:
		return fmt.Sprintf("it continues from the kept head, event %d", f.Seq)
	case replay.Report:
		return fmt.Sprintf("%s, %s the same (%s)",
			guard.Count(f.Events, "event"), guard.Count(f.Requests, "request"), f.Status)
	case store.VerifiedExport:
		text := fmt.Sprintf("%s of the system journal up to event %d, %s with %s, %d with content; ",
			guard.Count(f.Events, "event"), f.Head.Seq, guard.Count(f.Runs, "run"), guard.Count(f.Links, "event"), f.Content)
		if f.Sealed {
			return text + "sealed with the keys of this data folder"
		}
		return text + "the hashes match, but this does not show who wrote them: it was not compared with the keys that " +
			"sealed it"
	}
	return ""
}

func prunedText(events int) string {
	if events == 0 {
		return ""
	}
	return ", the content of " + guard.Count(events, "event") + " was pruned"
}

// Verify checks the hash chain of a run, named as by [Service.FindRun]. If run is empty, it checks everything that is
// stored, for administrators, because problems name runs of all users. kept is an exported head to compare with, or
// nil.
func (s *Service) Verify(
	ctx context.Context, who toolcrib.Principal, run string, kept *store.Head,
) ([]api.Checked, error) {
	if run != "" {
		rec, err := s.Env.Find(ctx, who, run)
		if err != nil {
			return nil, err
		}
		v, err := s.Env.Store.Verify(ctx, rec.ID)
		if _, no := env.Administrator(who); err == nil && no == nil { // it reads all runs
			_, err = s.Env.Store.VerifySystem(ctx, nil)
		}
		return []api.Checked{checked(rec.ID, v, err)}, ctx.Err()
	}
	if _, err := env.Administrator(who); err != nil {
		return nil, err
	}
	found, err := s.verifyAll(ctx)
	if err == nil && kept != nil {
		_, err := s.Env.Store.VerifySystem(ctx, kept)
		found = append(found, checked(store.SystemChain, *kept, err))
	}
	return found, errors.Join(err, ctx.Err())
}

func (s *Service) verifyAll(ctx context.Context) (found []api.Checked, err error) {
	all, err := s.Env.Store.VerifyAll(ctx)
	if err == nil {
		err = s.Env.Store.Check(ctx) // the chains do not read the pages of indexes
	}
	if err != nil && len(all.Problems) == 0 {
		return nil, err
	}
	for _, p := range all.Problems {
		found = append(found, checked(p.Run, nil, p))
	}
	if all.More {
		found = append(found, checked("", nil, errors.New("there are more problems than these")))
	}
	if err == nil {
		found = append(found, checked("", all, nil))
	}
	return found, nil
}

// Replay replays the journal of a run, named as by [Service.FindRun], or of all runs that who may see and that have
// their content, if run is empty. It calls no model and no tool.
func (s *Service) Replay(ctx context.Context, who toolcrib.Principal, run string) (found []api.Checked, err error) {
	one := func(rec store.RunRecord) error {
		r, err := replay.Run(ctx, s.Env.Store, rec.ID)
		if errors.Is(err, store.ErrPruned) {
			err = fmt.Errorf("run %s cannot be replayed: its content was pruned", rec.ID)
		}
		found = append(found, checked(rec.ID, r, err))
		return ctx.Err()
	}
	if run != "" {
		rec, err := s.Env.Find(ctx, who, run)
		if err == nil {
			err = one(rec)
		}
		return found, err
	}
	for rec, err := range s.Env.EachRun(ctx, who, store.Filter{}) {
		if err == nil && rec.PrunedAt.IsZero() {
			err = one(rec)
		}
		if err != nil {
			return found, err
		}
	}
	return found, nil
}
