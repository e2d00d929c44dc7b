package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/api"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/replay"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// AuditKinds returns the kinds of entries of the audit log.
func AuditKinds() []string {
	all := append(
		store.AuditKinds(), env.KindSecretSet, env.KindSecretRemoved, env.KindNoteChanged, env.KindNoteRemoved, KindOtherCall,
		access.UserAdded, access.UserChanged, access.UserRemoved,
		access.GroupPut, access.GroupRemoved, access.TokenIssued, access.TokenRevoked,
	)
	kinds := make([]string, len(all))
	for i, k := range all {
		kinds[i] = string(k)
	}
	return kinds
}

// Audit returns a page of the audit log, for administrators. run names a run as
// [Service.FindRun] does; "" = any. A whole ID may be that of a run that was removed.
func (s *Service) Audit(
	ctx context.Context, who toolcrib.Principal, f store.AuditFilter, run string,
) (page store.AuditPage, err error) {
	if _, err := env.Administrator(who); err != nil {
		return page, err
	}
	for _, kind := range f.Kinds {
		if !slices.Contains(AuditKinds(), string(kind)) {
			return page, env.UnknownWord("kind", string(kind), AuditKinds())
		}
	}
	if run != "" {
		rec, err := s.Env.Find(ctx, who, run)
		switch f.Run = rec.ID; {
		case err != nil && !wholeRunID(run):
			return page, err
		case err != nil:
			f.Run = toolcrib.RunID(run)
		}
	}
	page, err = s.Env.Store.Audit(ctx, f)
	if errors.Is(err, store.ErrBadCursor) {
		err = toolcrib.Errorf(toolcrib.CodeBadRequest, "invalid cursor %q; use the value of next from the previous page", f.Cursor)
	}
	if page.Entries == nil {
		page.Entries = []store.AuditEntry{}
	}
	s.nameCalls(ctx, page.Entries)
	return page, err
}

// Bounds of what a list of the audit log has of a call, in bytes of JSON: of one argument,
// and of all of them.
const (
	auditArgument  = 512
	auditArguments = 4 << 10
)

// shortArguments cuts long arguments one by one, so that those beside them stay.
func shortArguments(arguments json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if len(arguments) > auditArgument && json.Unmarshal(arguments, &fields) == nil {
		for name, value := range fields {
			short, _ := guard.Truncate(guard.Content{JSON: value}, auditArgument, "")
			if fields[name] = short.JSON; !short.IsJSON() {
				fields[name], _ = json.Marshal(short.Text) // a text has a JSON form always
			}
		}
		if cut, err := json.Marshal(fields); err == nil {
			arguments = cut
		}
	}
	short, _ := guard.Truncate(guard.Content{JSON: arguments}, auditArguments, "")
	return short.JSON
}

// nameCalls adds to entries the calls that they are about, from the journals of their runs.
// What cannot be read, or was pruned, is left out: runs verify reports it.
func (s *Service) nameCalls(ctx context.Context, entries []store.AuditEntry) {
	runs := map[toolcrib.RunID]map[string][]store.AuditCall{} // by the IDs of calls and of approvals
	for i := range entries {
		e := &entries[i]
		if e.Chain == store.SystemChain || e.CallID == "" && e.ApprovalID == "" {
			continue
		}
		known, ok := runs[e.Chain]
		if !ok {
			known = s.callsOf(ctx, e.Chain)
			runs[e.Chain] = known
		}
		e.Calls = known[cmp.Or(e.CallID, e.ApprovalID)]
	}
}

func (s *Service) callsOf(ctx context.Context, run toolcrib.RunID) map[string][]store.AuditCall {
	known := map[string][]store.AuditCall{}
	for e, err := range s.Env.Store.Read(ctx, run, 0) {
		if err != nil {
			break
		}
		switch b := e.Body.(type) {
		case *journal.ToolCall:
			known[b.ID] = []store.AuditCall{{ID: b.ID, Name: b.Name, Arguments: shortArguments(b.Arguments)}}
		case *journal.ConfirmationRequired:
			for _, c := range b.Calls {
				known[b.ApprovalID] = append(known[b.ApprovalID], known[c.ID]...)
			}
		}
	}
	return known
}

func wholeRunID(name string) bool {
	const prefix, length = "run_", 26
	return strings.HasPrefix(name, prefix) && len(name) == len(prefix)+length
}

// ExportAudit writes the audit log as it is at one moment, for administrators.
func (s *Service) ExportAudit(ctx context.Context, who toolcrib.Principal, w io.Writer, o store.ExportOptions) error {
	if _, err := env.Administrator(who); err != nil {
		return err
	}
	return s.Env.Store.ExportAudit(ctx, w, o)
}

// checked is what was found, or what does not hold.
func checked(run toolcrib.RunID, found any, err error) api.Checked {
	if err != nil {
		return api.Checked{Run: run, Detail: err.Error()}
	}
	return api.Checked{Run: run, OK: true, Found: found, Detail: FoundText(found)}
}

// FoundText says in words what was found.
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

// Verify checks the hash chain of a run, named as by [Service.FindRun]. If run is empty it
// checks everything that is stored, for administrators: what is wrong names runs of
// everybody. kept is a head that was exported before, to compare with; nil = none.
func (s *Service) Verify(
	ctx context.Context, who toolcrib.Principal, run string, kept *store.Head,
) ([]api.Checked, error) {
	if run != "" {
		rec, err := s.Env.Find(ctx, who, run)
		if err != nil {
			return nil, err
		}
		v, err := s.Env.Store.Verify(ctx, rec.ID)
		if err == nil {
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
		err = s.Env.Store.Check(ctx) // no chain reads the pages of indexes
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

// AcceptDamage accepts what is stored as it is, for administrators: new runs are started
// in spite of damage that is found. The journal says so, and by whom.
func (s *Service) AcceptDamage(ctx context.Context, who toolcrib.Principal) error {
	by, err := env.Administrator(who)
	if err == nil {
		_, err = s.Env.Store.AcceptDamage(ctx, by)
	}
	return err
}

// Head returns where the system journal stands, for administrators.
func (s *Service) Head(ctx context.Context, who toolcrib.Principal) (store.Head, error) {
	if _, err := env.Administrator(who); err != nil {
		return store.Head{}, err
	}
	return s.Env.Store.Head(ctx)
}

// Replay goes through the journal of a run again, named as by [Service.FindRun]; if run is
// empty, through all that who may see and that have their content. No model and no tool
// is called.
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
