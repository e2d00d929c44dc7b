package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/people"
	"github.com/toolcrib/toolcrib/store"
)

// goodFor describes the scope of a token.
func goodFor(t *people.Token) string {
	who := "for " + t.User
	if t.User == access.Bearer {
		who = "for anyone who has it"
	}
	parts := []string{who}
	if t.Scope.SignIn {
		parts = append(parts, "with all of their rights")
	}
	list := func(what string, names []string) {
		switch {
		case names == nil:
		case len(names) == 0:
			parts = append(parts, "no "+what)
		default:
			parts = append(parts, what+" "+strings.Join(names, ", "))
		}
	}
	list("agents", t.Scope.Agents)
	list("tools", t.Scope.Tools)
	list("capabilities", t.Scope.Capabilities)
	for _, name := range slices.Sorted(maps.Keys(t.Scope.Params)) {
		values := make([]string, len(t.Scope.Params[name]))
		for i, value := range t.Scope.Params[name] {
			values[i] = paramText(value)
		}
		if len(values) == 0 {
			values = []string{"nothing"}
		}
		parts = append(parts, name+" = "+strings.Join(values, " or "))
	}
	if t.CallsLeft != nil {
		parts = append(parts, fmt.Sprintf("%d of %d calls left", *t.CallsLeft, t.Scope.MaxCalls))
	}
	if t.MinuteLeft != nil {
		parts = append(parts, render.Count(int(t.Scope.RatePerMinute), "call")+" a minute")
	}
	if t.NotBefore.After(t.IssuedAt) {
		parts = append(parts, "from "+t.NotBefore.Local().Format(time.DateTime))
	}
	return guard.Visible(strings.Join(append(parts, "until "+t.Expires.Local().Format(time.DateTime)), "; "))
}

// paramText formats a value as JSON.
func paramText(v any) string {
	text, err := guard.EncodeJSON(v, false)
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(text))
}

func (a *app) tokensListCommand(cmd *cobra.Command) {
	user := cmd.Flags().String("user", "", "")
	listing(a, cmd, a.reading, "TOKEN|STATE|LABEL|BY|ISSUED|GOOD",
		func(c call) ([]people.Token, error) { return c.People.Tokens(c, c.who, *user) },
		func(t *people.Token) []string {
			return []string{
				short(t.ID), strings.ReplaceAll(t.State, "_", " "), t.Label, t.IssuedBy, day(t.IssuedAt), goodFor(t),
			}
		})
}

func (a *app) tokensRevokeCommand(cmd *cobra.Command) {
	runs := cmd.Flags().Bool("runs", false, "")
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		t, changed, err := c.People.RevokeToken(c, c.who, c.args[0], *runs)
		word := "revoked"
		if !changed {
			word += " already"
		}
		return t, func() { a.says(short(t.ID), word) }, noSuch("tokens", err, c.args[0])
	})
}

// checkedToken is the result of tokens check.
type checkedToken struct {
	Good    bool          `json:"good"`
	Code    toolcrib.Code `json:"error,omitempty"` // code of the error
	Message string        `json:"message,omitempty"`
	*people.Token
}

func (a *app) tokensCheckCommand(cmd *cobra.Command) {
	a.answering(cmd, a.forAdministrators(a.reading), func(c call) (any, func(), error) {
		text, err := a.typedToken()
		if err != nil {
			return nil, nil, err
		}
		t, err := c.People.CheckToken(c, c.who, text)
		var no *toolcrib.Error
		if c.json && errors.As(err, &no) {
			return checkedToken{Code: no.Code, Message: no.Message}, nil, silent(exitFailed)
		}
		if no != nil || errors.As(err, &no) {
			return nil, nil, &exitError{exitFailed, errorText(no)}
		}
		return checkedToken{Good: true, Token: &t}, func() {
			fmt.Fprintf(a.out, "%s  good %s\n", short(t.ID), goodFor(&t))
		}, err
	})
}

// tokenFlags are the flags that describe a token.
type tokenFlags struct {
	people.TokenRequest
	params []string
}

func (a *app) tokensCreateCommand(cmd *cobra.Command) {
	var f tokenFlags
	f.Via, f.TTL = "cli", access.DefaultTTL
	flags := cmd.Flags()
	flags.StringVar(&f.User, "user", "", "")
	flags.BoolVar(&f.Bearer, "bearer", false, "")
	flags.BoolVar(&f.Scope.SignIn, "sign-in", false, "")
	for name, list := range map[string]*[]string{
		"agent": &f.Scope.Agents, "tool": &f.Scope.Tools, "capability": &f.Scope.Capabilities,
	} {
		flags.Func(name, "", func(text string) error { return grow(list, text) })
	}
	flags.StringArrayVar(&f.params, "param", nil, "")
	flags.Func("max-calls", "", more(&f.Scope.MaxCalls))
	flags.Func("rate", "", more(&f.Scope.RatePerMinute))
	flags.Func("ttl", "", span(&f.TTL))
	flags.Func("not-before", "", at(&f.NotBefore))
	flags.StringVar(&f.Label, "label", "", "")
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		if err := f.read(flags); err != nil {
			return nil, nil, err
		}
		s, who, err := a.changing(c)
		if err != nil {
			return nil, nil, err
		}
		t, err := s.People.CreateToken(c, who, f.TokenRequest)
		if err != nil {
			return nil, nil, noSuch("users", err, f.User)
		}
		if flags.Changed("not-before") && f.NotBefore.Before(t.IssuedAt) {
			a.notice("--not-before: is in the past; the token is valid from now on")
		}
		a.tellUnknown("--agent", t.Scope.Agents,
			func(n *namesKnown, name string) string {
				return missing("agent", name, n.agents...)
			})
		a.tellUnknown("--tool", t.Scope.Tools,
			func(n *namesKnown, name string) string {
				return missing("tool", name, n.tools...)
			})
		return t, func() {
			fmt.Fprintf(a.err, "%s: good %s\n", short(t.ID), goodFor(&t))
			fmt.Fprintln(a.out, t.Token)
		}, nil
	})
}

// read sets the request from the flags.
func (f *tokenFlags) read(flags *pflag.FlagSet) (err error) {
	if err := oneOf(flags, "user", "bearer"); err != nil {
		return err
	}
	if f.Scope.Params, err = parseParams(f.params); err == nil {
		_, err = f.Scope.Check()
	}
	return err
}

// parseParams parses NAME=JSON; an array is a choice of values.
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

// jsonValue parses one JSON value and keeps the spelling of numbers.
func jsonValue(text string) (v any, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if !json.Valid([]byte(text)) {
		return nil, errors.New("not JSON")
	}
	err = d.Decode(&v)
	return v, err
}

// acting is the principal that the command acts for, determined once.
type acting struct {
	who toolcrib.Principal
	err error
}

// principal returns the principal that the command acts for. The store is opened only for --as and
// --token-file: without them, it is the local user.
func (a *app) principal(ctx context.Context) (toolcrib.Principal, error) {
	if a.acting == nil {
		who, err := a.actsFor(ctx)
		a.acting = &acting{who, err}
	}
	return a.acting.who, a.acting.err
}

// localUser returns the local user: an administrator of their own data folder.
func localUser() toolcrib.Principal {
	return toolcrib.Principal{User: "local:" + osUser(), Admin: true}
}

func (a *app) actsFor(ctx context.Context) (toolcrib.Principal, error) {
	self := localUser().User
	switch {
	case a.tokenFlag != "":
		return a.byToken(ctx, self)
	case a.asFlag == "", a.asFlag == self:
		return localUser(), nil
	case a.asFlag == standing.Anonymous,
		standing.Local(a.asFlag) && len(a.asFlag) <= maxUserName && guard.Visible(a.asFlag) == a.asFlag:
		return toolcrib.Principal{User: a.asFlag, Actor: self}, nil
	}
	if err := access.CheckName(a.asFlag); err != nil {
		return toolcrib.Principal{}, usagef("--as: %v", err)
	}
	kept, err := a.svc()
	if err != nil {
		return toolcrib.Principal{}, err
	}
	return kept.People.ActFor(ctx, self, a.asFlag)
}

// actor determines the principal that the command acts for, if a flag names one, so that nothing is
// done or shown for a user without rights. Commands that help to set toolcrib up work anyway.
func (a *app) actor(cmd *cobra.Command) error {
	if err := a.connect(cmd); err != nil || a.remote != nil {
		return err
	}
	top := cmd
	for top.HasParent() && top.Parent().HasParent() {
		top = top.Parent()
	}
	switch {
	case top.Name() == "users" && slices.Contains(a.args[:slices.Index(a.args, "users")], "--admin"):
		return usagef("--admin before users is about runs; to make somebody an administrator give it after the command")
	case a.adminFlag && (a.tokenFlag != "" || a.asFlag != "" && a.asFlag != localUser().User):
		return usagef("--admin: is for runs of your own; with --as and --token-file the user's rights count")
	case a.tokenFlag == "" && a.asFlag == "":
		return nil
	case a.tokenFlag != "" && a.asFlag != "":
		return usagef("--as and --token-file: both say whom to act for; give one of them")
	case a.tokenFlag == "-" && readsStdin(cmd):
		return usagef("--token-file - and the other -: both read standard input; give the token as --token-file FILE, or " +
			"the other one without -")
	case a.tokenFlag != "" && (top.Name() == "trust" || top.Name() == "init"):
		return toolcrib.Errorf(toolcrib.CodeForbidden, "an access token cannot trust a folder")
	}
	switch top.Name() {
	case "config", "trust", "init", "doctor", "version", "completion", "help":
		return nil
	}
	who, err := a.principal(cmd.Context())
	cmd.SetContext(store.WithToken(cmd.Context(), who.TokenID()))
	return err
}

// readsStdin reports whether - means standard input for another argument or flag of the command.
func readsStdin(cmd *cobra.Command) bool {
	args := cmd.Flags().Lookup("args")
	return slices.Contains(cmd.Flags().Args(), "-") || args != nil && args.Value.String() == "-"
}

// byToken returns the principal of the token in --token-file.
func (a *app) byToken(ctx context.Context, self string) (who toolcrib.Principal, err error) {
	text, err := a.readToken()
	if err != nil {
		return who, err
	}
	kept, err := a.svc()
	if err != nil {
		return who, err
	}
	return kept.People.ActBy(ctx, self, text)
}

// readToken reads the token of --token-file.
func (a *app) readToken() (string, error) {
	if a.tokenFlag == "-" {
		return a.typedToken()
	}
	f, err := os.Open(a.tokenFlag)
	if err != nil {
		return "", usagef("--token-file: %v", err)
	}
	defer f.Close()
	return a.tokenFrom(f)
}

// typedToken reads a token from standard input, without echo on a terminal.
func (a *app) typedToken() (string, error) {
	if !a.inTerminal {
		return a.tokenFrom(a.in)
	}
	text, err := a.typedHidden("Access token")
	if err != nil {
		return "", err
	}
	return a.tokenFrom(bytes.NewReader(text))
}

// tokenFrom reads one token and trims white space. From now on the token is masked wherever it appears.
func (a *app) tokenFrom(in io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(in, 2*access.MaxTokenBytes))
	if err != nil {
		return "", usagef("the token cannot be read: %v", err)
	}
	text := string(bytes.TrimSpace(data))
	if text != "" {
		a.masker.Learn(guard.Secret{Name: "access_token", Value: text})
	}
	return text, nil
}

// administering returns the acting administrator, or an error.
func (a *app) administering(ctx context.Context) (toolcrib.Principal, error) {
	who, err := a.principal(ctx)
	if err == nil {
		_, err = env.Administrator(who)
	}
	return who, err
}

// lazySecrets resolves ${secret:NAME}, also in a configuration that is only inspected. The service is
// made at the first use.
type lazySecrets struct{ app *app }

// Secret implements [config.SecretStore].
func (s lazySecrets) Secret(name string) (string, error) {
	kept, err := s.app.svc()
	if err != nil {
		return "", err
	}
	return kept.Env.Secret(name)
}
