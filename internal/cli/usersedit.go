package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/guard"
)

func (a *app) usersEditCommand() *cobra.Command {
	var f userFlags
	cmd := &cobra.Command{
		Use:   "edit NAME",
		Short: "Change a user; what is not named stays as it is",
		Long: "Change a user; what is not named stays as it is. A list that is given takes the place of the old one. " +
			"A change counts at the next call, also in runs that are on their way. " +
			"Where grants name agents, only those may be used; taking the last such grant away is refused unless --all-agents says that this is meant.",
		Example: `toolcrib users edit anna --grant 'read_*' --grant web_fetch
toolcrib users edit anna --grant 'read_*' --grant agent:reader
toolcrib users edit anna --no-grants --all-agents
toolcrib users edit anna --grant ''
toolcrib users edit anna --no-admin --group staff`,
		Args:              positional,
		ValidArgsFunction: a.completeUsers,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.editUser(cmd, args[0], &f)
		},
	}
	a.userFlags(cmd, &f)
	cmd.Flags().BoolVar(&f.noAdmin, "no-admin", false, "no administrator any more")
	cmd.Flags().BoolVar(&f.noGrants, "no-grants", false, "declare no grants: nothing is restricted, unless a group does")
	cmd.Flags().BoolVar(&f.allAgents, "all-agents", false, allAgentsUsage)
	return cmd
}

func (a *app) editUser(cmd *cobra.Command, name string, f *userFlags) error {
	edit, err := f.edit(cmd.Flags())
	if err != nil {
		return err
	}
	if edit == (access.Edit{}) && !f.passwordStdin {
		return usagef("nothing to change: name what is to be another\nSee: %s --help", cmd.CommandPath())
	}
	edit.AllAgents = f.allAgents
	s, by, err := a.directory(cmd.Context())
	if err != nil {
		return err
	}
	u, err := a.knownUser(cmd.Context(), s, name)
	if err != nil {
		return err
	}
	if _, err := edit.Apply(u); err != nil { // before anything is told about it, or asked for
		return err
	}
	hash := ""
	if f.passwordStdin {
		if hash, err = a.newPassword(cmd.Context(), u.Name); err != nil {
			return err
		}
	}
	if edit != (access.Edit{AllAgents: f.allAgents}) {
		if edit.Grants != nil {
			a.tellGrants(cmd.Context(), *edit.Grants)
		}
		c, err := s.Access().EditUser(cmd.Context(), u.Name, edit, by)
		if err != nil {
			return agentsError(err)
		}
		u = *c.User
	}
	if hash != "" {
		if _, err := s.Access().SetPasswordHash(cmd.Context(), u.Name, hash, by); err != nil {
			return err
		}
	}
	return a.changedUser(cmd.Context(), s, u, "changed", f.json)
}

const allAgentsUsage = "every agent may be used when no grant names one any more"

// agentsError is an error about people, with the flag that says that all agents are meant.
func agentsError(err error) error {
	var free *access.AllAgentsError
	if errors.As(err, &free) {
		return toolcrib.Errorf(toolcrib.CodeOf(err), "%v (--all-agents)", err)
	}
	return err
}

func (a *app) usersStateCommand(verb, short, word string, disabled bool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               verb + " NAME",
		Short:             short,
		Long:              short + ". It counts at the next call, also in runs that are on their way.",
		Example:           fmt.Sprintf("toolcrib users %s anna", verb),
		Args:              positional,
		ValidArgsFunction: a.completeUsers,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, by, u, err := a.userOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if u.Disabled == disabled {
				return a.changedUser(cmd.Context(), s, u, word+" already", asJSON)
			}
			c, err := s.Access().EditUser(cmd.Context(), u.Name, access.Edit{Disabled: &disabled}, by)
			if err != nil {
				return err
			}
			return a.changedUser(cmd.Context(), s, *c.User, word, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

func (a *app) usersRemoveCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a user for good, and revoke their tokens",
		Long: "Remove a user for good, with the password and all tokens. Runs, sessions and notes stay, which is why the name is not " +
			"given to another one without `users add --reuse`.",
		Example:           "toolcrib users remove anna",
		Args:              positional,
		ValidArgsFunction: a.completeUsers,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, by, u, err := a.userOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			c, err := s.Access().RemoveUser(cmd.Context(), u.Name, by)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printUser(cmd.Context(), s, *c.User)
			}
			fmt.Fprintf(a.out, "%s: removed\n", guard.Visible(u.Name))
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

func (a *app) usersPasswordCommand() *cobra.Command {
	var clearIt, asJSON bool
	cmd := &cobra.Command{
		Use:   "password NAME",
		Short: "Set the password of a user, or take it away",
		Long: fmt.Sprintf("Set the password of a user: read without an echo on a terminal, else from standard input, where one newline at its end does not count. "+
			"It has at least %d characters. Only a hash of it is kept.", access.MinPasswordRunes),
		Example:           "toolcrib users password anna\ntoolcrib users password anna < password.txt\ntoolcrib users password anna --clear",
		Args:              positional,
		ValidArgsFunction: a.completeUsers,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, by, u, err := a.userOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			hash, word := "", "the password was taken away"
			if !clearIt {
				word = "the password was set"
				if hash, err = a.newPassword(cmd.Context(), u.Name); err != nil {
					return err
				}
			}
			if _, err := s.Access().SetPasswordHash(cmd.Context(), u.Name, hash, by); err != nil {
				return err
			}
			return a.changedUser(cmd.Context(), s, u, word, asJSON)
		},
	}
	cmd.Flags().BoolVar(&clearIt, "clear", false, "take the password away")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

// newPassword reads a password and returns its hash. The password is masked from now on.
func (a *app) newPassword(ctx context.Context, name string) (string, error) {
	text, err := a.readPassword(name)
	if err != nil {
		return "", err
	}
	defer clear(text)
	a.masker.Learn(guard.Secret{Name: "password." + name, Value: string(text)})
	hash, err := access.NewHasher(1).Hash(ctx, string(text))
	return hash, err
}

func (a *app) readPassword(name string) ([]byte, error) {
	if a.inTerminal {
		text, err := a.typedHidden("Password of " + name)
		if err != nil {
			return nil, err
		}
		again, err := a.typedHidden("Once more")
		if err != nil {
			return nil, err
		}
		defer clear(again)
		if !bytes.Equal(text, again) {
			return nil, usagef("these were two passwords; nothing was changed")
		}
		return text, nil
	}
	text, err := io.ReadAll(io.LimitReader(a.in, access.MaxPasswordBytes+3))
	if err != nil {
		return nil, fmt.Errorf("standard input: %v", err)
	}
	text = bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
	if len(text) == 0 {
		return nil, usagef("standard input is empty: there is no password")
	}
	return text, nil
}
