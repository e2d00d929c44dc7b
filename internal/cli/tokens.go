package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service"
)

// goodFor says what a token may be used for, in one text.
func goodFor(t *service.Token) string {
	who := "for " + t.User
	if t.User == access.Bearer {
		who = "for any bearer"
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
	for _, name := range sortedKeys(t.Scope.Params) {
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
		parts = append(parts, fmt.Sprintf("%d calls a minute", t.Scope.RatePerMinute))
	}
	if t.NotBefore.After(t.IssuedAt) {
		parts = append(parts, "from "+t.NotBefore.Local().Format(time.DateTime))
	}
	return guard.Visible(strings.Join(append(parts, "until "+t.Expires.Local().Format(time.DateTime)), "; "))
}

// paramText is a value as JSON.
func paramText(v any) string {
	var b bytes.Buffer
	if err := printJSON(&b, v, false); err != nil {
		return "?"
	}
	return strings.TrimSpace(b.String())
}

func (a *app) tokensListCommand(cmd *cobra.Command) {
	user := cmd.Flags().String("user", "", "")
	all := cmd.Flags().Bool("all", false, fmt.Sprintf("all of them, not only the newest %d", peopleShown))
	completeFlag(cmd, "user", a.completeUsers())
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		limit := peopleShown
		if *all {
			limit = 0
		}
		tokens, total, err := c.Tokens(c, c.who, *user, limit)
		if total > len(tokens) {
			a.notice("there are %d tokens; --all lists all of them", total)
		}
		return tokens, func() {
			now := time.Now()
			table(a, "TOKEN|STATE|LABEL|BY|ISSUED|GOOD", tokens, func(t *service.Token) []string {
				return []string{
					short(t.ID), strings.ReplaceAll(t.State, "_", " "), t.Label, t.IssuedBy,
					shortTime(t.IssuedAt.Local(), now), goodFor(t),
				}
			})
		}, err
	})
}

func (a *app) tokensRevokeCommand(cmd *cobra.Command) {
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		t, changed, err := c.RevokeToken(c, c.who, c.args[0])
		word := "revoked"
		if !changed {
			word += " already"
		}
		return t, func() { a.says(short(t.ID), word) }, hint(err, c.args[0], "`toolcrib tokens list` shows them all")
	})
}

// checkedToken is what tokens check says.
type checkedToken struct {
	Good    bool          `json:"good"`
	Code    toolcrib.Code `json:"error,omitempty"` // of contract §9
	Message string        `json:"message,omitempty"`
	*service.Token
}

func (a *app) tokensCheckCommand(cmd *cobra.Command) {
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		if _, err := a.administering(c); err != nil {
			return nil, nil, err
		}
		s, who, err := a.reading(c)
		if err != nil {
			return nil, nil, err
		}
		text, err := a.typedToken()
		if err != nil {
			return nil, nil, err
		}
		t, err := s.CheckToken(c, who, text)
		var no *toolcrib.Error
		if c.json && errors.As(err, &no) {
			return checkedToken{Code: no.Code, Message: no.Message}, nil, silent(exitFailed)
		}
		return checkedToken{Good: true, Token: &t}, func() {
			fmt.Fprintf(a.out, "%s  good %s\n", short(t.ID), goodFor(&t))
		}, err
	})
}

// tokenFlags say what a token is for.
type tokenFlags struct {
	service.TokenRequest
	params []string
}

func (a *app) tokensCreateCommand(cmd *cobra.Command) {
	var f tokenFlags
	f.Via, f.TTL = "cli", access.DefaultTTL
	flags := cmd.Flags()
	flags.StringVar(&f.User, "user", "", "")
	flags.BoolVar(&f.Bearer, "bearer", false, "")
	flags.BoolVar(&f.Scope.SignIn, "sign-in", false, "")
	flags.StringArrayVar(&f.Scope.Agents, "agent", nil, "")
	flags.StringArrayVar(&f.Scope.Tools, "tool", nil, "")
	flags.StringArrayVar(&f.Scope.Capabilities, "capability", nil, "")
	flags.StringArrayVar(&f.params, "param", nil, "")
	flags.Func("max-calls", "", more(&f.Scope.MaxCalls))
	flags.Func("rate", "", more(&f.Scope.RatePerMinute))
	flags.Func("ttl", "", span(&f.TTL))
	flags.Func("not-before", "", at(&f.NotBefore))
	flags.StringVar(&f.Label, "label", "", "")
	completeFlag(cmd, "user", a.completeUsers())
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		if err := f.read(flags); err != nil {
			return nil, nil, err
		}
		s, who, err := a.changing(c)
		if err != nil {
			return nil, nil, err
		}
		t, err := s.CreateToken(c, who, f.TokenRequest)
		if err != nil {
			return nil, nil, noUser(err, f.User)
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

// read fills the request in from the flags.
func (f *tokenFlags) read(flags *pflag.FlagSet) (err error) {
	if err := oneOf(flags, "user", "bearer"); err != nil {
		return err
	}
	for name, scope := range map[string]*[]string{
		"agent": &f.Scope.Agents, "tool": &f.Scope.Tools, "capability": &f.Scope.Capabilities,
	} {
		if list := changedList(flags, name, *scope); list != nil {
			*scope = *list
		}
	}
	if f.Scope.Params, err = parseParams(f.params); err == nil {
		_, err = f.Scope.Check()
	}
	return err
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
