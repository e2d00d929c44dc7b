package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/people"
	"github.com/toolcrib/toolcrib/service/policy"
	"github.com/toolcrib/toolcrib/store"
)

func (a *app) auditListCommand(cmd *cobra.Command) {
	var f store.AuditFilter
	var run string
	flags := cmd.Flags()
	sinceUntil(flags, &f.Since, &f.Until)
	flags.Func("user", "", filled(&f.User))
	kinds := flags.StringSlice("kind", nil, "")
	flags.Func("run", "", filled(&run))
	flags.BoolVar(&f.OldestFirst, "oldest", false, "")
	limitFlag(flags, &f.Limit, store.DefaultLimit, store.MaxLimit)
	flags.Func("cursor", "", filled(&f.Cursor))
	completeWords(cmd, "kind", people.AuditKinds()...)
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		for _, kind := range *kinds {
			f.Kinds = append(f.Kinds, toolcrib.Kind(kind))
		}
		page, err := c.People.Audit(c, c.who, f, run)
		return page, func() { a.showAudit(page) }, err
	})
}

func (a *app) showAudit(page store.AuditPage) {
	if len(page.Entries) == 0 {
		fmt.Fprintln(a.out, "there is nothing in the audit log that fits")
		return
	}
	table(a, "TIME|KIND|WHO|ABOUT|RUN|DETAIL", page.Entries, func(e *store.AuditEntry) []string {
		return []string{
			e.Time.Local().Format(time.DateTime), string(e.Kind), auditWho(e), auditAbout(e), short(e.Run), auditDetail(e),
		}
	})
	if page.Next != "" {
		a.notice("there is more: --cursor %s", page.Next)
	}
}

// auditWho names the user who acted or decided, and the user it was for.
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

// auditAbout names the subject of an entry.
func auditAbout(e *store.AuditEntry) string {
	switch {
	case len(e.Calls) > 0:
		parts := make([]string, len(e.Calls))
		for i, c := range e.Calls {
			parts[i] = callText(c.Name, c.Arguments)
		}
		return strings.Join(parts, "; ")
	case e.Tool != "":
		return e.Tool
	case e.Chain != store.SystemChain:
		return cmp.Or(toolcrib.ShortID(e.ApprovalID), e.Agent)
	}
	return e.Subject
}

// auditDetail returns the reason of an entry for people.
func auditDetail(e *store.AuditEntry) string {
	if e.Pruned {
		return "the content was pruned"
	}
	var parts []string
	if len(e.Calls) > 0 && e.ApprovalID != "" {
		parts = append(parts, toolcrib.ShortID(e.ApprovalID))
	}
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

// payloadText formats the values of a system event that have no column, each under its last name and in
// a fixed order. With --json the payload is complete.
func payloadText(e *store.AuditEntry) string {
	var payload any
	if err := json.Unmarshal(e.Payload, &payload); err != nil {
		return guard.Visible(string(e.Payload))
	}
	var parts []string
	var walk func(name string, v any)
	walk = func(name string, v any) {
		if fields, ok := v.(map[string]any); ok {
			for _, key := range slices.Sorted(maps.Keys(fields)) {
				walk(key, fields[key])
			}
			return
		}
		text := fmt.Sprint(v)
		_, noTime := time.Parse(time.RFC3339, text)
		seconds, _ := v.(float64)
		part, elsewhere := name+"="+text, []string{"", "<nil>", e.Subject, e.By, e.Tool}
		if noTime != nil && seconds < 1e9 && !slices.Contains(elsewhere, text) && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	walk("", payload)
	return guard.Visible(strings.Join(parts, " "))
}

func (a *app) auditExportCommand(cmd *cobra.Command) {
	alwaysJSON(cmd)
	var o store.ExportOptions
	flags := cmd.Flags()
	flags.Func("since", "", since(&o.Since))
	flags.BoolVar(&o.Content, "content", false, "")
	a.doing(cmd, a.reading, func(c call) error {
		ctx, stop := a.interruptible(c, agent.NameOf(c.who), a.err)
		defer stop()
		const buffer = 256 << 10
		out := bufio.NewWriterSize(a.out, buffer)
		err := cmp.Or(c.People.ExportAudit(ctx, c.who, out, o), out.Flush())
		return cmp.Or(context.Cause(ctx), err)
	})
}

// Every change that affects toolcrib is in the audit log. The store records its own changes; these
// functions record those made outside of it.

// recordTrust records that the content of a folder became trusted or stopped being trusted. The folder
// may contain the configuration that locates the data folder, so the event goes to the data folder that
// is in use afterwards. A failure to record does not undo the change; it is reported in a notice.
func (a *app) recordTrust(ctx context.Context, kind toolcrib.Kind, folder *policy.Folder) {
	err := a.storeOfTrust(ctx)
	who := toolcrib.Principal{}
	if err == nil {
		who, err = a.principal(ctx)
	}
	if err != nil {
		a.notice("not recorded in the audit log: %v", err)
		return
	}
	a.service.Policy.RecordTrust(ctx, who, kind, folder, "")
}

// storeOfTrust opens the store of the configuration in effect without asking.
func (a *app) storeOfTrust(ctx context.Context) error {
	s, err := a.serviceOfTrust()
	if err == nil {
		err = s.Env.Open(ctx)
	}
	return err
}

// trustStore returns the record of trust under the configuration in effect or, if that cannot be used, the
// user's own.
func (a *app) trustStore() trust.Store {
	s, err := a.serviceOfTrust()
	if err != nil {
		return env.TrustStore()
	}
	return s.Env.TrustStore()
}

// serviceOfTrust returns the service of the configuration in effect without asking: a configuration of the
// current folder only if it is trusted, otherwise the user's own, otherwise the defaults.
func (a *app) serviceOfTrust() (*service.Service, error) {
	if a.service != nil && a.service.Env.IsOpen() {
		return a.service, nil
	}
	if a.config == nil {
		c, err := config.Load(a.source(), a.trustedAlready)
		var untrusted *trust.UntrustedError
		if errors.As(err, &untrusted) {
			c, err = config.Load(config.Own(os.Getenv), nil)
		}
		if err != nil {
			return nil, err
		}
		a.config = c
		// The question asked before has been answered by now, so the configuration is read again
		// afterwards.
		defer func() { a.config = nil }()
	}
	return a.svc()
}
