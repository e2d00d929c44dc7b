package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

// tokenFlags say what a token is for.
type tokenFlags struct {
	user, ttl, notBefore, label string
	bearer, json                bool
	agents, tools, capabilities []string
	params                      []string
	maxCalls, rate              int64
}

func (a *app) tokensCreateCommand() *cobra.Command {
	var f tokenFlags
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Issue an access token; it is shown once",
		Long: "Issue an access token. The token alone goes to standard output, what it is good for to standard error. It is shown once: " +
			"only its claims are kept. Without --agent, --tool, --capability and --param it covers all that its user may do.",
		Example: `toolcrib tokens create --user anna > token.txt
toolcrib tokens create --user build --agent reader --tool 'read_*' --tool search_files --ttl 30d --label "the build"
toolcrib tokens create --bearer --tool read_file --param 'path="README.md"' --max-calls 10 --rate 5 --ttl 1h
toolcrib tokens create --user anna --not-before 2026-12-24 --json`,
		Args: positional,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.createToken(cmd, &f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.user, "user", "", "the user who is acted for; with --as that user, if none is given")
	flags.BoolVar(&f.bearer, "bearer", false, "for whoever carries it: it acts as anonymous")
	flags.StringArrayVar(&f.agents, "agent", nil, "an agent that may be used, or a glob; may be repeated; '' = none")
	flags.StringArrayVar(&f.tools, "tool", nil, "a tool that may be called, or a glob; may be repeated; '' = none")
	flags.StringArrayVar(&f.capabilities, "capability", nil, "a capability that may be called, such as rag.query@1.0; may be repeated; '' = none")
	flags.StringArrayVar(&f.params, "param", nil, "a value that a parameter must have, as JSON; several for one parameter, or an array, are a choice")
	flags.Int64Var(&f.maxCalls, "max-calls", 0, "so many calls, ever")
	flags.Int64Var(&f.rate, "rate", 0, "so many calls in any 60 seconds")
	flags.StringVar(&f.ttl, "ttl", access.DefaultTTL.String(), "how long it is good, such as 90m, 24h or 30d")
	flags.StringVar(&f.notBefore, "not-before", "", "when that begins: a date, or a time (RFC 3339)")
	flags.StringVar(&f.label, "label", "", "what you call it")
	flags.BoolVar(&f.json, "json", false, "one JSON value: the token and what it is good for")
	// The flag was just made, so this cannot fail.
	_ = cmd.RegisterFlagCompletionFunc("user", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.completeUsers(cmd, nil, "")
	})
	return cmd
}

func (a *app) createToken(cmd *cobra.Command, f *tokenFlags) error {
	ctx := cmd.Context()
	request, err := f.request(cmd.Flags())
	if err != nil {
		return err
	}
	if request.By, err = a.administering(ctx); err != nil {
		return err
	}
	s, err := a.database(ctx)
	if err != nil {
		return err
	}
	if request.Subject, err = a.subject(ctx, s, f, request.By.User); err != nil {
		return err
	}
	signer, err := a.service.Signer()
	if err != nil {
		return err
	}
	now := a.service.Now()
	text, claims, err := signer.Issue(request, now)
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("not-before") && request.NotBefore.Before(now) {
		a.notice("--not-before: that is over already; the token is good from now on")
	}
	a.tellUnknown(ctx, "--agent", request.Scope.Agents, func(n *namesKnown, name string) string { return missing("agent", name, n.agents...) })
	a.tellUnknown(ctx, "--tool", request.Scope.Tools, func(n *namesKnown, name string) string { return missing("tool", name, n.tools...) })
	change, err := s.Access().AddToken(ctx, access.Issued{Claims: claims, Label: f.label}, nameOf(request.By))
	if err != nil {
		return err
	}
	v, err := a.tokenView(ctx, s, *change.Token)
	if err != nil {
		return err
	}
	if f.json {
		v.Token = text
		return printJSON(a.out, v, true)
	}
	fmt.Fprintf(a.err, "%s: good %s\n", v.ID, guard.Visible(v.goodFor()))
	fmt.Fprintln(a.out, text)
	return nil
}

// subject is the user whom a new token acts for: one of the directory who may do
// something.
func (a *app) subject(ctx context.Context, s *sqlite.Store, f *tokenFlags, by string) (string, error) {
	name := f.user
	switch {
	case f.bearer && name != "":
		return "", usagef("--user and --bearer: give one of them")
	case f.bearer:
		return access.Bearer, nil
	case name == "" && standing.Local(by):
		return "", usagef("whom is the token for? give --user or --bearer")
	case name == "":
		name = by
	}
	u, err := a.knownUser(ctx, s, name)
	if err != nil {
		return "", err
	}
	if why := standing.Inactive(u); why != "" {
		return "", toolcrib.Errorf(toolcrib.CodeForbidden, "%s", why)
	}
	return u.Name, nil
}

// request is what the flags ask for.
func (f *tokenFlags) request(flags *pflag.FlagSet) (r access.Request, err error) {
	for name, value := range map[string]int64{"max-calls": f.maxCalls, "rate": f.rate} {
		if flags.Changed(name) && value < 1 {
			return r, usagef("--%s: must be at least 1", name)
		}
	}
	if r.TTL, err = parseSpan(f.ttl); err != nil {
		return r, err
	}
	if flags.Changed("not-before") {
		if r.NotBefore, err = parseTime(f.notBefore); err != nil {
			return r, err
		}
	}
	r.Via = "cli"
	r.Scope = access.Scope{RatePerMinute: f.rate, MaxCalls: f.maxCalls}
	for name, to := range map[string]struct {
		list  []string
		scope *[]string
	}{"agent": {f.agents, &r.Scope.Agents}, "tool": {f.tools, &r.Scope.Tools}, "capability": {f.capabilities, &r.Scope.Capabilities}} {
		if flags.Changed(name) {
			*to.scope = givenList(to.list)
		}
	}
	if r.Scope.Params, err = parseParams(f.params); err != nil {
		return r, err
	}
	_, err = r.Scope.Check()
	return r, err
}

// parseSpan reads a span of time that is not 0.
func parseSpan(text string) (time.Duration, error) {
	days, inDays := strings.CutSuffix(text, "d")
	if inDays {
		text = days + "h"
	}
	span, err := time.ParseDuration(text)
	if inDays && err == nil {
		const most = 100 * 366 * time.Hour // times a day: no overflow
		span = 24 * min(max(span, 0), most)
	}
	if err != nil || span <= 0 {
		return 0, usagef("--ttl: must be a span of time such as 90m, 24h or 30d")
	}
	return span, nil
}

// parseTime reads a date, or a time.
func parseTime(text string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, text, time.Local); err == nil {
		return t, nil
	}
	return time.Time{}, usagef("--not-before: %q is no date such as 2026-01-31, and no time (RFC 3339)", guard.Visible(text))
}

// parseParams reads NAME=JSON; an array is a choice of values.
func parseParams(list []string) (map[string][]any, error) {
	var params map[string][]any
	for _, text := range list {
		name, raw, ok := strings.Cut(text, "=")
		value, err := jsonValue(raw)
		if !ok || name == "" || err != nil {
			return nil, usagef("--param: must be NAME=JSON, such as path='\"a.txt\"' or limit=10")
		}
		values, array := value.([]any)
		if !array {
			values = []any{value}
		}
		if params == nil {
			params = map[string][]any{}
		}
		params[name] = append(params[name], values...)
	}
	return params, nil
}

// jsonValue reads one JSON value; numbers stay as they are written.
func jsonValue(text string) (v any, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, io.ErrUnexpectedEOF
	}
	return v, nil
}

// paramText is a value as JSON.
func paramText(v any) string {
	var b bytes.Buffer
	if err := printJSON(&b, v, false); err != nil {
		return "?"
	}
	return strings.TrimSpace(b.String())
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
