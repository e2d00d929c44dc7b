package people

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// AuditKinds returns the kinds of entries of the audit log.
func AuditKinds() []string {
	all := append(
		store.AuditKinds(), env.KindSecretSet, env.KindSecretRemoved, env.KindNoteChanged, env.KindNoteRemoved,
		env.KindOtherCall,
		access.UserAdded, access.UserChanged, access.UserRemoved,
		access.GroupPut, access.GroupRemoved, access.TokenIssued, access.TokenRevoked, access.TokenRemoved,
		access.SignedIn, access.SignInFailed, access.SignedOut, access.PasswordSet, access.PasswordRemoved,
		access.PasswordLinked, access.NodeTrusted, access.NodeInvited, access.InviteRevoked,
	)
	kinds := make([]string, len(all))
	for i, k := range all {
		kinds[i] = string(k)
	}
	return kinds
}

// Audit returns a page of the audit log, for administrators. run names a run by its ID or a part of it, "" for any.
// A complete ID may be that of a removed run.
func (s *People) Audit(
	ctx context.Context, who toolcrib.Principal, f store.AuditFilter, run string,
) (page store.AuditPage, err error) {
	if _, err := env.Administrator(who); err != nil {
		return page, err
	}
	for _, kind := range f.Kinds {
		if !slices.Contains(AuditKinds(), string(kind)) {
			return page, env.UnknownValue("kind", string(kind), AuditKinds())
		}
	}
	if run != "" {
		rec, err := s.env.Find(ctx, who, run)
		switch f.Run = rec.ID; {
		case err != nil && !wholeRunID(run):
			return page, err
		case err != nil:
			f.Run = toolcrib.RunID(run)
		}
	}
	page, err = s.env.Store.Audit(ctx, f)
	if errors.Is(err, store.ErrBadCursor) {
		err = toolcrib.Errorf(toolcrib.CodeBadRequest, "invalid cursor %q; use the value of next from the previous page", f.Cursor)
	}
	if page.Entries == nil {
		page.Entries = []store.AuditEntry{}
	}
	s.nameCalls(ctx, page.Entries)
	return page, err
}

// Bounds of what a list of the audit log has of a call, in bytes of JSON: of one argument, and of all of them.
const (
	auditArgument  = 512
	auditArguments = 4 << 10
)

// shortArguments cuts long arguments one by one, so that the others remain.
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

// nameCalls adds the calls that entries are about, from the journals of their runs. Calls that cannot be read or
// were pruned are omitted.
func (s *People) nameCalls(ctx context.Context, entries []store.AuditEntry) {
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

func (s *People) callsOf(ctx context.Context, run toolcrib.RunID) map[string][]store.AuditCall {
	known := map[string][]store.AuditCall{}
	for e, err := range s.env.Store.Read(ctx, run, 0) {
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

// ExportAudit writes a snapshot of the audit log, for administrators.
func (s *People) ExportAudit(ctx context.Context, who toolcrib.Principal, w io.Writer, o store.ExportOptions) error {
	if _, err := env.Administrator(who); err != nil {
		return err
	}
	return s.env.Store.ExportAudit(ctx, w, o)
}

// AcceptDamage accepts the stored data as it is, for administrators, so that new runs can start in spite of damage.
// The journal records who accepted it.
func (s *People) AcceptDamage(ctx context.Context, who toolcrib.Principal) error {
	by, err := env.Administrator(who)
	if err == nil {
		_, err = s.env.Store.AcceptDamage(ctx, by)
	}
	return err
}

// Head returns the head of the system journal, for administrators.
func (s *People) Head(ctx context.Context, who toolcrib.Principal) (store.Head, error) {
	if _, err := env.Administrator(who); err != nil {
		return store.Head{}, err
	}
	return s.env.Store.Head(ctx)
}
