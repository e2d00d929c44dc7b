package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/people"
)

// passwordSet is the result of users password.
type passwordSet struct {
	User    string `json:"user"`
	Changed bool   `json:"changed"`
}

func (a *app) usersPasswordCommand(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usagef("the password is not an argument, where others could see it: type it when asked, or give it on "+
				"standard input\nSee: %s --help", cmd.CommandPath())
		}
		return positional(cmd, args)
	}
	flags := cmd.Flags()
	link, remove := flags.Bool("link", false, ""), flags.Bool("remove", false, "")
	a.answering(cmd, a.forAdministrators(a.changing), func(c call) (any, func(), error) {
		if err := oneOf(flags, "link", "remove"); err != nil {
			return nil, nil, err
		}
		name := c.args[0]
		switch {
		case *link:
			l, err := c.People.PasswordLink(c, c.who, name)
			l.Link = a.publicAddress(c.Service, "") + l.Link
			return l, func() {
				fmt.Fprintf(a.err, "%s sets a password here, once, until %s:\n", guard.Visible(l.User), day(l.Expires))
				fmt.Fprintln(a.out, l.Link)
			}, noSuch("users", err, name)
		case *remove:
			changed, err := c.People.RemovePassword(c, c.who, name)
			word := "password removed"
			if !changed {
				word = "has no password"
			}
			return passwordSet{name, changed}, func() { a.says(name, word) }, noSuch("users", err, name)
		}
		if _, err := c.People.User(c, c.who, name); err != nil { // before anything is asked
			return nil, nil, noSuch("users", err, name)
		}
		password, err := a.newPassword(name)
		if err == nil {
			err = c.People.SetPassword(c, c.who, name, password)
		}
		return passwordSet{name, true}, func() { a.says(name, "has a new password; sessions of theirs have ended") }, err
	})
}

// newPassword reads a password: twice on a terminal, otherwise from standard input.
func (a *app) newPassword(user string) (string, error) {
	if !a.inTerminal {
		value, err := a.pipedSecret("password", people.MaxPasswordBytes)
		if err == nil {
			err = people.CheckPassword(user, string(value))
		}
		return string(value), err
	}
	value, err := a.typedHidden("Password of " + user)
	if err == nil {
		err = people.CheckPassword(user, string(value))
	}
	if err != nil {
		return "", err
	}
	again, err := a.typedOrNot("The same again")
	if err == nil && string(again) != string(value) {
		err = usagef("these are two different passwords; nothing was changed")
	}
	return string(value), err
}

// publicAddress returns the address at which people reach the server of the data folder: the first origin of
// server.cors, or where it listens. If listen is "", that is as configured.
func (a *app) publicAddress(s *service.Service, listen string) string {
	c := &s.Env.Config.Server
	if len(c.CORS) > 0 {
		return c.CORS[0]
	}
	if listen == "" {
		var err error
		if listen, err = s.Env.Config.Listen.Resolve(a.resolver()); err != nil {
			return ""
		}
	}
	if c.TLS.Cert.IsEmpty() {
		return "http://" + listen
	}
	return "https://" + listen
}
