package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/replay"
	"github.com/toolcrib/toolcrib/store"
)

// Checked is what was found out about one run, or about everything that is stored.
type Checked struct {
	Run   toolcrib.RunID // "" = everything
	Found any            // store.Verified, store.VerifiedAll, store.Head or replay.Report
	Err   error          // what does not hold; nil = it holds
}

// Verify checks the hash chain of a run, named as by [Service.FindRun]. If run is empty it
// checks everything that is stored, for administrators: what is wrong names runs of
// everybody. kept is a head that was exported before, to compare with; nil = none.
func (s *Service) Verify(ctx context.Context, who toolcrib.Principal, run string, kept *store.Head) ([]Checked, error) {
	if run != "" {
		rec, err := s.find(ctx, who, run)
		if err != nil {
			return nil, err
		}
		v, err := s.store.Verify(ctx, rec.ID)
		if err == nil {
			_, err = s.store.VerifySystem(ctx)
		}
		return []Checked{{Run: rec.ID, Found: v, Err: err}}, ctx.Err()
	}
	if _, err := Administrator(who); err != nil {
		return nil, err
	}
	found, err := s.verifyAll(ctx)
	if err == nil && kept != nil {
		_, err := s.store.VerifySystemAgainst(ctx, *kept)
		found = append(found, Checked{Run: store.SystemChain, Found: *kept, Err: err})
	}
	return found, errors.Join(err, ctx.Err())
}

func (s *Service) verifyAll(ctx context.Context) (found []Checked, err error) {
	all, err := s.store.VerifyAll(ctx)
	if err == nil {
		err = s.store.Check(ctx) // no chain reads the pages of indexes
	}
	if err != nil && len(all.Problems) == 0 {
		return nil, err
	}
	for _, p := range all.Problems {
		found = append(found, Checked{Run: p.Run, Err: p})
	}
	if all.More {
		found = append(found, Checked{Err: errors.New("there are more problems than these")})
	}
	if err == nil {
		found = append(found, Checked{Found: all})
	}
	return found, nil
}

// AcceptDamage accepts what is stored as it is, for administrators: new runs are started
// in spite of damage that is found. The journal says so, and by whom.
func (s *Service) AcceptDamage(ctx context.Context, who toolcrib.Principal) error {
	by, err := Administrator(who)
	if err == nil {
		_, err = s.store.AcceptDamage(ctx, by)
	}
	return err
}

// Head returns where the system journal stands, for administrators.
func (s *Service) Head(ctx context.Context, who toolcrib.Principal) (store.Head, error) {
	if _, err := Administrator(who); err != nil {
		return store.Head{}, err
	}
	return s.store.Head(ctx)
}

// Replay goes through the journal of a run again, named as by [Service.FindRun]; if run is
// empty, through all that who may see and that have their content. No model and no tool
// is called.
func (s *Service) Replay(ctx context.Context, who toolcrib.Principal, run string) (found []Checked, err error) {
	one := func(rec store.RunRecord) error {
		r, err := replay.Run(ctx, s.store, rec.ID)
		if errors.Is(err, store.ErrPruned) {
			err = fmt.Errorf("run %s cannot be replayed: its content was pruned", rec.ID)
		}
		found = append(found, Checked{Run: rec.ID, Found: r, Err: err})
		return ctx.Err()
	}
	if run != "" {
		rec, err := s.find(ctx, who, run)
		if err == nil {
			err = one(rec)
		}
		return found, err
	}
	err = s.eachRun(ctx, who, store.Filter{}, func(rec store.RunRecord) error {
		if !rec.PrunedAt.IsZero() {
			return nil
		}
		return one(rec)
	})
	return found, err
}
