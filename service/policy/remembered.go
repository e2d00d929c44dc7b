package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/agent/core"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// Memory keeps the approvals that are remembered for a session or a user, for the loop.
type Memory struct{ Store store.Store }

// Remembered implements [agent.Memory].
func (m Memory) Remembered(ctx context.Context, user string, session toolcrib.SessionID) ([]journal.Remembered, error) {
	kept, err := m.Store.Remembered(ctx, user, session)
	if err != nil {
		return nil, err
	}
	list := make([]journal.Remembered, len(kept))
	for i, k := range kept {
		list[i] = RememberedCalls(k)
	}
	return list, nil
}

// RememberedCalls returns the calls that a remembered approval covers.
func RememberedCalls(k store.Remembered) journal.Remembered {
	return journal.Remembered{
		Tool: k.Tool, Source: k.Source, Arguments: k.Arguments, Path: k.Path, Folder: k.Folder, Program: k.Program,
		Effect: k.Effect, Scope: k.Scope,
		ApprovalID: k.ApprovalID, By: k.By, Workspace: k.Workspace, FolderID: k.FolderID,
	}
}

// Remember implements [agent.Memory].
func (m Memory) Remember(
	ctx context.Context, user string, session toolcrib.SessionID, run toolcrib.RunID, approvals []journal.Remembered,
) error {
	for _, r := range approvals {
		keep := keptOf(r, user, run)
		if r.Scope == journal.RememberSession {
			keep.Session = session
		}
		if _, _, err := m.Store.Remember(ctx, keep); err != nil {
			return err
		}
	}
	return nil
}

// Forgotten implements [agent.Memory].
func (m Memory) Forgotten(ctx context.Context, run toolcrib.RunID) ([]journal.Forgotten, error) {
	var list []journal.Forgotten
	kept, err := m.Store.ListRemembered(ctx, store.RememberedFilter{Run: run, Revoked: true, Limit: store.MaxLimit})
	for _, k := range kept {
		if k.Scope == journal.RememberRun {
			list = append(list, journal.Forgotten{
				ApprovalID: k.ApprovalID, Tool: k.Tool, Arguments: k.Arguments, Path: k.Path, Folder: k.Folder,
				Program: k.Program, By: k.RevokedBy,
			})
		}
	}
	return list, err
}

// Remembered returns the remembered approvals that apply to later calls. An administrator gets those of all users, an
// access token those of the runs that it started, and a user their own and those of runs about which they may decide.
// If revoked is set, the list includes those that no longer apply.
func (p *Policy) Remembered(
	ctx context.Context, who toolcrib.Principal, revoked bool, limit int,
) ([]store.Remembered, error) {
	f := store.RememberedFilter{User: who.User, Token: who.Token, Revoked: revoked, Limit: limit}
	switch {
	case env.Admin(who):
		f.User = ""
	case who.User == "":
		return []store.Remembered{}, nil
	}
	list, err := p.env.Store.ListRemembered(ctx, f)
	if err != nil {
		return nil, err
	}
	runs, err := p.rememberedForRuns(ctx, who)
	list = append(append([]store.Remembered{}, list...), runs...)
	slices.SortFunc(list, func(a, b store.Remembered) int { return strings.Compare(a.ID, b.ID) })
	return list[:min(len(list), store.Bound(f.Limit))], err
}

// rememberedForRuns returns the approvals that are remembered for runs that have not ended.
func (p *Policy) rememberedForRuns(ctx context.Context, who toolcrib.Principal) (list []store.Remembered, err error) {
records:
	for rec, err := range p.env.EachDecidable(ctx, who, store.Filter{Holds: true}) {
		if err != nil {
			return list, err
		}
		revoked, err := p.env.Store.ListRemembered(ctx, store.RememberedFilter{
			Run: rec.ID, Revoked: true, Limit: store.MaxLimit,
		})
		if err != nil {
			return list, err
		}
		state := core.NewState(rec.ID)
		at := map[string]time.Time{} // when each approval was decided
		for e, err := range p.env.Store.Read(ctx, rec.ID, 0) {
			if err == nil {
				err = core.Fold(state, e)
			}
			if ctx.Err() != nil {
				return list, ctx.Err()
			}
			if err != nil {
				p.env.Notice(fmt.Sprintf("what is remembered for run %s cannot be read: %v", rec.ID, err))
				continue records // the others can be read
			}
			if b, ok := e.Body.(*journal.ConfirmationResolved); ok {
				at[b.ApprovalID] = e.Time
			}
		}
		for _, r := range state.Remembered {
			m := keptOf(r, rec.User, rec.ID)
			m.At, m.ID = at[r.ApprovalID], m.MakeID()
			same := func(o store.Remembered) bool { return o.ID == m.ID }
			if !slices.ContainsFunc(revoked, same) && !slices.ContainsFunc(list, same) {
				list = append(list, m)
			}
		}
	}
	return list, nil
}

// keptOf returns a remembered approval as the store keeps it.
func keptOf(r journal.Remembered, user string, run toolcrib.RunID) store.Remembered {
	return store.Remembered{
		Scope: r.Scope, User: user, Tool: r.Tool, Source: r.Source, Arguments: r.Arguments, Path: r.Path, Folder: r.Folder,
		Program: r.Program, Workspace: r.Workspace, FolderID: r.FolderID, Effect: r.Effect,
		Run: run, ApprovalID: r.ApprovalID, By: r.By,
	}
}

// Forget revokes a remembered approval, so that such calls ask again, in runs in progress as well. It reports whether
// the approval still applied.
func (p *Policy) Forget(
	ctx context.Context, who toolcrib.Principal, id string,
) (m store.Remembered, changed bool, err error) {
	of := who.User
	if env.Admin(who) {
		of = ""
	} else if of == "" {
		return m, false, noneRemembered(id)
	}
	if m, err = p.rememberedByPart(ctx, who, of, id); err != nil {
		return m, false, err
	}
	if m.Scope == journal.RememberRun {
		if !m.RevokedAt.IsZero() {
			return m, false, nil
		}
		m.RevokedAt, m.RevokedBy = time.Now().UTC().Truncate(time.Microsecond), agent.NameOf(who)
		err = p.env.Record(ctx, store.SystemForgotten, m)
		return m, err == nil, err
	}
	if changed, err = p.env.Store.Forget(ctx, of, m.ID, agent.NameOf(who)); err != nil {
		return m, false, err
	}
	m, err = p.rememberedByPart(ctx, who, of, m.ID)
	return m, changed, err
}

// rememberedByPart returns a remembered approval by its ID or the beginning of it.
func (p *Policy) rememberedByPart(
	ctx context.Context, who toolcrib.Principal, of, part string,
) (store.Remembered, error) {
	const prefix = "rem_"
	begin := prefix + strings.TrimPrefix(part, prefix)
	list, err := p.env.Store.ListRemembered(ctx, store.RememberedFilter{
		User: of, Token: who.Token, Revoked: true, After: begin[:len(begin)-1], Limit: store.MaxLimit,
	})
	if err != nil {
		return store.Remembered{}, err
	}
	runs, err := p.rememberedForRuns(ctx, who)
	if err != nil {
		return store.Remembered{}, err
	}
	list = append(list, runs...)
	m, err := env.ByPart("approval", prefix, part, list, func(m store.Remembered) string { return m.ID })
	if toolcrib.CodeOf(err) == toolcrib.CodeNotFound {
		err = noneRemembered(part)
	}
	return m, err
}

func noneRemembered(id string) error {
	return toolcrib.Errorf(toolcrib.CodeNotFound, "no approval is remembered as %s", id)
}
