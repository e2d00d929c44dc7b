package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/store"
)

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Look at the audit log, verify and export it",
		Long: "The audit log is what the gate has decided, what people have decided and changed, and what steers toolcrib: a view of " +
			"the journals of all runs and of the system journal, whose chains of hashes vouch for it. For administrators.",
		Example: "toolcrib audit list --since 24h\ntoolcrib audit verify\ntoolcrib audit export -o audit.ndjson",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(a.auditListCommand(), a.auditVerifyCommand(), a.auditExportCommand())
	return cmd
}

// auditFlags are the flags of audit list.
type auditFlags struct {
	since, until, user, run, cursor string
	kinds                           []string
	oldest, json                    bool
	limit                           int
}

func (a *app) auditListCommand() *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what was decided and changed, the newest first",
		Long: "List the entries of the audit log, the newest first: verdicts of the gate (allowed, asked, refused), approvals and who decided, " +
			"raised limits, and changes of tools, users, tokens, secrets, trust, skills and the configuration. With --as both names stand there. For administrators.",
		Example: `toolcrib audit list --since 24h
toolcrib audit list --kind refused --kind approval_decided --user ann
toolcrib audit list --run last --oldest --json`,
		Args: positional,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listAudit(cmd.Context(), &f, cmd.Flags()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.since, "since", "", "from then on: a span such as 24h or 7d, a date, or a time (RFC 3339)")
	flags.StringVar(&f.until, "until", "", "before then, written as --since")
	flags.StringVar(&f.user, "user", "", "about this user, or done by them")
	flags.StringSliceVar(&f.kinds, "kind", nil, "entries of this kind; may be repeated")
	flags.StringVar(&f.run, "run", "", "about this run: its ID, the beginning of one, or last")
	flags.BoolVar(&f.oldest, "oldest", false, "the oldest first")
	flags.IntVar(&f.limit, "limit", store.DefaultLimit, fmt.Sprintf("so many at most, 1 to %d", store.MaxLimit))
	flags.StringVar(&f.cursor, "cursor", "", "go on from here: next of the page before, with the same filters")
	flags.BoolVar(&f.json, "json", false, "one JSON value")
	// The flag was just made, so this cannot fail.
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(auditKinds(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// auditKinds are the kinds of entries, for completion and for telling a slip.
func auditKinds() []string {
	all := append(store.AuditKinds(), systemSecretSet, systemSecretRemoved,
		access.UserAdded, access.UserChanged, access.UserRemoved, access.GroupPut, access.GroupRemoved, access.PasswordSet, access.TokenIssued, access.TokenRevoked)
	kinds := make([]string, len(all))
	for i, k := range all {
		kinds[i] = string(k)
	}
	return kinds
}

// filter is what the flags choose, but for the run.
func (f *auditFlags) filter(flags *pflag.FlagSet, now time.Time) (filter store.AuditFilter, err error) {
	filter = store.AuditFilter{User: f.user, OldestFirst: f.oldest, Limit: f.limit, Cursor: f.cursor}
	if f.limit < 1 || f.limit > store.MaxLimit {
		return filter, usagef("--limit: must be 1 to %d", store.MaxLimit)
	}
	for _, name := range []string{"user", "run", "cursor"} {
		if flags.Changed(name) && flags.Lookup(name).Value.String() == "" {
			return filter, usagef("--%s: must not be empty", name)
		}
	}
	for _, kind := range f.kinds {
		if !slices.Contains(auditKinds(), kind) {
			text := fmt.Sprintf("--kind: %q is none", kind)
			if near := nearest(kind, auditKinds()); near != "" {
				text += fmt.Sprintf("; did you mean %q?", near)
			}
			return filter, usagef("%s\nThere are: %s", text, strings.Join(auditKinds(), ", "))
		}
		filter.Kinds = append(filter.Kinds, toolcrib.Kind(kind))
	}
	if filter.Since, err = timeFlag("since", f.since, now); err != nil {
		return filter, err
	}
	if filter.Until, err = timeFlag("until", f.until, now); err != nil {
		return filter, err
	}
	if filter.Check() != nil {
		return filter, usagef("--until: must come after --since")
	}
	return filter, nil
}

func (a *app) listAudit(ctx context.Context, f *auditFlags, flags *pflag.FlagSet) error {
	filter, err := f.filter(flags, time.Now())
	if err != nil {
		return err
	}
	if _, err := a.administrator(ctx); err != nil {
		return err
	}
	s, err := a.databaseToRead(ctx)
	if err != nil {
		return err
	}
	if f.run != "" {
		if filter.Run, err = a.auditedRun(ctx, f.run); err != nil {
			return err
		}
	}
	page, err := s.Audit(ctx, filter)
	if errors.Is(err, store.ErrBadCursor) {
		return usagef("--cursor: %q is none; it is next of the page before", f.cursor)
	}
	if err != nil {
		return err
	}
	if f.json {
		if page.Entries == nil {
			page.Entries = []store.AuditEntry{}
		}
		return printJSON(a.out, page, true)
	}
	a.showAudit(page)
	return nil
}

// auditedRun is the ID of a run. One that is not there any more may have left entries,
// so that a whole ID is taken as it is.
func (a *app) auditedRun(ctx context.Context, name string) (toolcrib.RunID, error) {
	rec, err := a.findRun(ctx, a.store, name)
	if err != nil && strings.HasPrefix(name, "run_") && len(name) == len("run_")+runIDLength {
		return toolcrib.RunID(name), nil
	}
	return rec.ID, err
}

// runIDLength is how many characters the ID of a run has behind run_.
const runIDLength = 26

func (a *app) showAudit(page store.AuditPage) {
	if len(page.Entries) == 0 {
		fmt.Fprintln(a.out, "there is nothing in the audit log that fits")
		return
	}
	rows := [][]string{{"TIME", "KIND", "WHO", "ABOUT", "RUN", "DETAIL"}}
	for i := range page.Entries {
		e := &page.Entries[i]
		rows = append(rows, []string{e.Time.Local().Format("2006-01-02 15:04:05"), string(e.Kind), auditWho(e), auditAbout(e), string(e.Run), auditDetail(e)})
	}
	a.outStyle.Table(a.out, rows)
	if page.Next != "" {
		a.notice("there is more: --cursor %s", page.Next)
	}
}

// auditWho is who did or decided it, and for whom.
func auditWho(e *store.AuditEntry) string {
	who := e.User
	switch {
	case e.By != "":
		who = e.By
	case e.Actor != "":
		who = fmt.Sprintf("%s (for %s)", e.Actor, e.User)
	}
	if e.Token != "" {
		who += ", " + e.Token
	}
	return who
}

// auditAbout is what an entry is about.
func auditAbout(e *store.AuditEntry) string {
	switch {
	case e.Tool != "":
		return e.Tool
	case e.Chain != store.SystemChain:
		return cmp.Or(e.ApprovalID, e.Agent)
	}
	return e.Subject
}

// auditDetail is why, in words.
func auditDetail(e *store.AuditEntry) string {
	if e.Pruned {
		return "the content was pruned"
	}
	var parts []string
	for _, part := range []string{e.Decision, e.Reason, e.Position, e.Message} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if e.Rule != "" {
		parts = append(parts, "rule "+e.Rule)
	}
	if e.Chain == store.SystemChain && len(parts) == 0 && len(e.Payload) > 0 {
		return payloadText(e)
	}
	return guard.Visible(strings.Join(parts, ", "))
}

// payloadText is what a system event says besides what stands in the other columns:
// each value under its last name, in a fixed order. --json has the whole.
func payloadText(e *store.AuditEntry) string {
	var payload any
	if err := json.Unmarshal(e.Payload, &payload); err != nil {
		return guard.Visible(string(e.Payload))
	}
	var parts []string
	var walk func(name string, v any)
	walk = func(name string, v any) {
		text := ""
		switch v := v.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				walk(key, v[key])
			}
		case []any:
			each := make([]string, len(v))
			for i := range v {
				each[i] = fmt.Sprint(v[i])
			}
			text = strings.Join(each, ",")
		case string:
			if _, err := time.Parse(time.RFC3339, v); err != nil {
				text = v
			}
		case float64:
			if v < 1e9 { // else a time
				text = fmt.Sprint(v)
			}
		case bool:
			text = fmt.Sprint(v)
		}
		if part := name + "=" + text; text != "" && text != e.Subject && text != e.By && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	walk("", payload)
	return guard.Visible(strings.Join(parts, " "))
}
