package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

func (a *app) tokensCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tokens",
		Short: "Access tokens: signed, for a user, within a scope",
		Long: "Access tokens are signed, belong to a user, and are good for a time, for some agents and tools, and for so many calls. " +
			"They never give more than their user has. For administrators.",
		Example: `toolcrib tokens create --user anna --tool 'read_*' --ttl 30d > token.txt
toolcrib --token-file token.txt tools explain
toolcrib tokens list
toolcrib tokens check < token.txt
toolcrib tokens revoke tok_4XQ`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.AddCommand(a.tokensCreateCommand(), a.tokensListCommand(), a.tokensRevokeCommand(), a.tokensCheckCommand())
	return cmd
}

// The states of a token.
const (
	tokenGood    = "good"
	tokenNotYet  = "not_yet"
	tokenExpired = "expired"
	tokenRevoked = "revoked"
)

// tokenView is a token as --json shows it. The token itself is kept nowhere.
type tokenView struct {
	Token     string       `json:"token,omitempty"` // only of a new one
	ID        string       `json:"id"`
	User      string       `json:"user"` // * = whoever carries it
	Label     string       `json:"label,omitempty"`
	State     string       `json:"state"` // good | not_yet | expired | revoked
	Scope     access.Scope `json:"scope"`
	IssuedBy  string       `json:"issued_by"`
	Via       string       `json:"issued_via"`
	IssuedAt  time.Time    `json:"issued_at"`
	NotBefore time.Time    `json:"not_before"`
	Expires   time.Time    `json:"expires_at"`
	Revoked   time.Time    `json:"revoked_at,omitzero"`
	RevokedBy string       `json:"revoked_by,omitempty"`
	// How many calls are left; null = no limit.
	CallsLeft  *int64 `json:"calls_left"`
	MinuteLeft *int64 `json:"calls_left_this_minute"`
}

func (a *app) tokenView(ctx context.Context, s *sqlite.Store, t access.Issued) (tokenView, error) {
	c, now := &t.Claims, a.service.Now()
	v := tokenView{
		ID: c.ID, User: c.Subject, Label: t.Label, State: tokenGood, Scope: c.Scope, IssuedBy: t.IssuedBy, Via: c.Via,
		IssuedAt: c.IssuedAt.Time(), NotBefore: c.NotBefore.Time(), Expires: c.Expires.Time(), Revoked: t.Revoked, RevokedBy: t.RevokedBy,
	}
	switch {
	case !t.Revoked.IsZero():
		v.State = tokenRevoked
	case !now.Before(v.Expires):
		v.State = tokenExpired
	case c.InTime(now) != nil:
		v.State = tokenNotYet
	}
	left, err := s.Access().Left(ctx, c.ID, c.Limits(), now)
	if err != nil {
		return v, err
	}
	if left.Limits.Total > 0 {
		v.CallsLeft = &left.Total
	}
	if left.Limits.PerMinute > 0 {
		v.MinuteLeft = &left.Minute
	}
	return v, nil
}

// goodFor tells what a token may be used for, in one text.
func (v *tokenView) goodFor() string {
	who := "for " + v.User
	if v.User == access.Bearer {
		who = "for whoever carries it"
	}
	parts := []string{who}
	list := func(what string, names []string) {
		switch {
		case names == nil:
		case len(names) == 0:
			parts = append(parts, "no "+what)
		default:
			parts = append(parts, what+" "+strings.Join(names, ", "))
		}
	}
	list("agents", v.Scope.Agents)
	list("tools", v.Scope.Tools)
	list("capabilities", v.Scope.Capabilities)
	for _, name := range sortedKeys(v.Scope.Params) {
		values := make([]string, len(v.Scope.Params[name]))
		for i, value := range v.Scope.Params[name] {
			values[i] = paramText(value)
		}
		if len(values) == 0 {
			values = []string{"nothing"}
		}
		parts = append(parts, name+" = "+strings.Join(values, " or "))
	}
	if v.CallsLeft != nil {
		parts = append(parts, fmt.Sprintf("%d of %d calls left", *v.CallsLeft, v.Scope.MaxCalls))
	}
	if v.MinuteLeft != nil {
		parts = append(parts, fmt.Sprintf("%d calls a minute", v.Scope.RatePerMinute))
	}
	if v.NotBefore.After(v.IssuedAt) {
		parts = append(parts, "from "+v.NotBefore.Local().Format(time.DateTime))
	}
	return strings.Join(append(parts, "until "+v.Expires.Local().Format(time.DateTime)), "; ")
}

func (a *app) tokensListCommand() *cobra.Command {
	var user string
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the access tokens that were issued, the newest first",
		Example: "toolcrib tokens list\ntoolcrib tokens list --user anna --json",
		Args:    positional,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.listTokens(cmd.Context(), user, all, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&user, "user", "", "only those of this user; '*' = those for any bearer")
	flags.BoolVar(&all, "all", false, fmt.Sprintf("all of them, not only the newest %d", peopleShown))
	flags.BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

// eachToken yields all tokens that were issued, of one user ("" = of all), by their IDs.
func eachToken(ctx context.Context, tokens access.Tokens, user string) iter.Seq2[access.Issued, error] {
	return func(yield func(access.Issued, error) bool) {
		for after := ""; ; {
			page, err := tokens.Tokens(ctx, user, after, access.MaxPage)
			if err != nil {
				yield(access.Issued{}, err)
				return
			}
			for _, t := range page {
				if !yield(t, nil) {
					return
				}
				after = t.Claims.ID
			}
			if len(page) < access.MaxPage {
				return
			}
		}
	}
}

func (a *app) listTokens(ctx context.Context, user string, all, asJSON bool) error {
	s, _, err := a.directory(ctx)
	if err != nil {
		return err
	}
	var list []access.Issued
	for t, err := range eachToken(ctx, s.Access(), user) {
		if err != nil {
			return err
		}
		list = append(list, t)
	}
	if err := newestFirst(ctx, s, list); err != nil {
		return err
	}
	if !all && len(list) > peopleShown {
		a.notice("there are %d tokens; --all lists all of them", len(list))
		list = list[:peopleShown]
	}
	views := make([]tokenView, len(list))
	for i, t := range list {
		if views[i], err = a.tokenView(ctx, s, t); err != nil {
			return err
		}
	}
	if asJSON {
		return printJSON(a.out, views, true)
	}
	rows := [][]string{{"TOKEN", "STATE", "LABEL", "BY", "ISSUED", "GOOD"}}
	now := time.Now()
	for i := range views {
		v := &views[i]
		rows = append(rows, []string{v.ID, strings.ReplaceAll(v.State, "_", " "), v.Label, v.IssuedBy, shortTime(v.IssuedAt.Local(), now), v.goodFor()})
	}
	a.outStyle.Table(a.out, rows)
	return nil
}

// newestFirst puts tokens in order. A token knows the second of its issue; which of two
// of one second came first, the system journal tells.
func newestFirst(ctx context.Context, s *sqlite.Store, list []access.Issued) error {
	order := func(x, y access.Issued) int { return cmp.Compare(y.Claims.IssuedAt, x.Claims.IssuedAt) }
	slices.SortStableFunc(list, order)
	if len(slices.CompactFunc(slices.Clone(list), func(x, y access.Issued) bool { return order(x, y) == 0 })) == len(list) {
		return nil
	}
	issued := map[string]toolcrib.Seq{}
	filter := store.AuditFilter{Kinds: []toolcrib.Kind{access.TokenIssued}, Limit: store.MaxLimit}
	for {
		page, err := s.Audit(ctx, filter)
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			issued[e.Subject] = e.Seq
		}
		if filter.Cursor = page.Next; filter.Cursor == "" {
			break
		}
	}
	slices.SortStableFunc(list, func(x, y access.Issued) int {
		return cmp.Or(order(x, y), cmp.Compare(issued[y.Claims.ID], issued[x.Claims.ID]), cmp.Compare(y.Claims.ID, x.Claims.ID))
	})
	return nil
}

func (a *app) tokensRevokeCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "revoke ID",
		Short: "Make a token worthless from now on",
		Long: "Make a token worthless from now on; it counts at the next call, also in runs that are on their way. " +
			"ID is that of a token, or the beginning of one.",
		Example: "toolcrib tokens revoke tok_4XQ",
		Args:    positional,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.revokeToken(cmd.Context(), args[0], asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

func (a *app) revokeToken(ctx context.Context, part string, asJSON bool) error {
	s, by, err := a.directory(ctx)
	if err != nil {
		return err
	}
	t, err := findToken(ctx, s, part)
	if err != nil {
		return err
	}
	already := !t.Revoked.IsZero()
	if _, err := s.Access().RevokeToken(ctx, t.Claims.ID, by); err != nil {
		return err
	}
	if asJSON {
		if t, err = s.Access().Token(ctx, t.Claims.ID); err != nil {
			return err
		}
		v, err := a.tokenView(ctx, s, t)
		if err != nil {
			return err
		}
		return printJSON(a.out, v, true)
	}
	word := "revoked"
	if already {
		word += " already"
	}
	fmt.Fprintf(a.out, "%s: %s\n", t.Claims.ID, word)
	return nil
}

const (
	minPart    = 2 // characters of an ID that may stand for it
	partsShown = 5 // tokens that an ambiguous part is said to fit
)

// findToken finds a token by its ID, or the beginning of it.
func findToken(ctx context.Context, s *sqlite.Store, part string) (t access.Issued, err error) {
	if len(part) < minPart {
		return t, usagef("%q is too short for the ID of a token; give at least %d characters", guard.Visible(part), minPart)
	}
	const prefix = "tok_"
	begin := prefix + strings.TrimPrefix(part, prefix)
	var found []access.Issued
	for one, err := range eachToken(ctx, s.Access(), "") {
		if err != nil {
			return t, err
		}
		switch {
		case one.Claims.ID == begin:
			return one, nil
		case strings.HasPrefix(one.Claims.ID, begin) && len(found) <= partsShown:
			found = append(found, one)
		}
	}
	switch len(found) {
	case 0:
		return t, toolcrib.Errorf(toolcrib.CodeNotFound, "there is no token %s; `toolcrib tokens list` shows what there is", guard.Visible(part))
	case 1:
		if begin == prefix { // every ID begins with it: what was to follow is missing
			return t, usagef("%q is too short for the ID of a token; give at least %d characters after it", guard.Visible(part), minPart)
		}
		return found[0], nil
	}
	text := fmt.Sprintf("token ID %s is ambiguous, give more of it; it fits", guard.Visible(part))
	for _, one := range found[:min(len(found), partsShown)] {
		text += "\n  " + one.Claims.ID
	}
	return t, fmt.Errorf("%s", text)
}

func (a *app) tokensCheckCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "check",
		Short:   "Read a token from standard input, and tell what it is good for, or why it is not",
		Example: "toolcrib tokens check < token.txt\ntoolcrib tokens check --json < token.txt",
		Args:    positional,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.checkToken(cmd.Context(), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

// checkedToken is what tokens check says.
type checkedToken struct {
	Good    bool          `json:"good"`
	Code    toolcrib.Code `json:"error,omitempty"` // of contract §9
	Message string        `json:"message,omitempty"`
	*tokenView
}

func (a *app) checkToken(ctx context.Context, asJSON bool) error {
	s, _, err := a.directory(ctx)
	if err != nil {
		return err
	}
	text, err := a.typedToken()
	if err != nil {
		return err
	}
	c, err := a.service.Verified(ctx, text)
	var no *toolcrib.Error
	switch {
	case errors.As(err, &no) && asJSON:
		if err := printJSON(a.out, checkedToken{Code: no.Code, Message: no.Message}, true); err != nil {
			return err
		}
		return silent(exitFailed)
	case err != nil:
		return err
	}
	t, err := s.Access().Token(ctx, c.ID)
	if err != nil {
		return err
	}
	v, err := a.tokenView(ctx, s, t)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(a.out, checkedToken{Good: true, tokenView: &v}, true)
	}
	fmt.Fprintf(a.out, "%s  good %s\n", v.ID, guard.Visible(v.goodFor()))
	return nil
}
