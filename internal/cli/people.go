package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service"
)

// acting is whom the command acts for, found out once.
type acting struct {
	who toolcrib.Principal
	err error
}

// principal is whom the command acts for (contract §1). The store is opened only for
// --as and --token-file: without them it is who sits here.
func (a *app) principal(ctx context.Context) (toolcrib.Principal, error) {
	if a.acting == nil {
		who, err := a.actsFor(ctx)
		a.acting = &acting{who, err}
	}
	return a.acting.who, a.acting.err
}

// localUser is who is at the keyboard: an administrator of their own data folder.
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
	name, err := access.CheckName(a.asFlag)
	if err != nil {
		return toolcrib.Principal{}, usagef("--as: %v", err)
	}
	kept, err := a.svc()
	if err != nil {
		return toolcrib.Principal{}, err
	}
	return kept.ActFor(ctx, self, name)
}

// actor finds out whom the command acts for where that is said, so that nothing is done
// or told for somebody who may do nothing. What helps to set toolcrib up works anyway.
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
	_, err := a.principal(cmd.Context())
	return err
}

// readsStdin reports whether - stands for standard input in the rest of a command.
func readsStdin(cmd *cobra.Command) bool {
	args := cmd.Flags().Lookup("args")
	return slices.Contains(cmd.Flags().Args(), "-") || args != nil && args.Value.String() == "-"
}

// byToken is whom the token of --token-file acts for.
func (a *app) byToken(ctx context.Context, self string) (who toolcrib.Principal, err error) {
	text, err := a.readToken()
	if err != nil {
		return who, err
	}
	kept, err := a.svc()
	if err != nil {
		return who, err
	}
	return kept.ActBy(ctx, self, text)
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

// typedToken reads a token from standard input: without an echo on a terminal.
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

// tokenFrom reads one token. White space around it does not count, and from now on it
// is masked wherever it shows up.
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

// administering is the administrator who acts, or an error.
func (a *app) administering(ctx context.Context) (toolcrib.Principal, error) {
	who, err := a.principal(ctx)
	if err == nil {
		_, err = service.Administrator(who)
	}
	return who, err
}

// lazySecrets gives what ${secret:NAME} stands for, also in a configuration that is only
// looked at. The service is made at the first use.
type lazySecrets struct{ app *app }

// Secret implements [config.SecretStore].
func (s lazySecrets) Secret(name string) (string, error) {
	kept, err := s.app.svc()
	if err != nil {
		return "", err
	}
	return kept.Secret(name)
}
