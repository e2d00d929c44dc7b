package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/secret"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/store"
	"github.com/toolcrib/toolcrib/store/sqlite"
)

func (a *app) secretCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secret",
		Short: "Store, list and remove secrets, such as API keys",
		Long: "Secrets are kept encrypted in the data folder; the configuration names them as ${secret:NAME}. " +
			"Nothing shows a value again. For administrators.",
		Example: "toolcrib secret set anthropic\ntoolcrib secret set anthropic < key.txt\ntoolcrib secret list\ntoolcrib secret remove anthropic",
		Args:    cobra.ArbitraryArgs,
		RunE:    group,
	}
	cmd.AddCommand(a.secretSetCommand(), a.secretListCommand(), a.secretRemoveCommand())
	return cmd
}

func (a *app) secretSetCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Store a secret, in place of the one of that name",
		Long: fmt.Sprintf("Store a secret, in place of the one of that name. The value is read without an echo on a terminal, else from standard input, "+
			"where one newline at its end is ignored; it has at most %d bytes. It is never an argument: others could see it there.", secret.MaxValueBytes),
		Example: "toolcrib secret set anthropic\ntoolcrib secret set anthropic < key.txt\ntoolcrib secret set anthropic --json < key.txt",
		// What is too much here may be the secret, so it is not repeated.
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("the value is no argument, where others could see it: type it when asked, or give it on standard input\nSee: %s --help", cmd.CommandPath())
			}
			return positional(cmd, args)
		},
		ValidArgsFunction: a.completeSecrets,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.setSecret(cmd.Context(), args[0], asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value, without the secret")
	return cmd
}

func (a *app) secretListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the names of the secrets, never their values",
		Example: "toolcrib secret list\ntoolcrib secret list --json",
		Args:    positional,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.listSecrets(cmd.Context(), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

func (a *app) secretRemoveCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "remove NAME",
		Short:             "Remove a secret",
		Example:           "toolcrib secret remove anthropic\ntoolcrib secret remove anthropic --json",
		Args:              positional,
		ValidArgsFunction: a.completeSecrets,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.removeSecret(cmd.Context(), args[0], asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON value")
	return cmd
}

// ownSecrets opens the secrets for an administrator. The keys are made with the
// database, so that is opened first, with open.
func (a *app) ownSecrets(ctx context.Context, open func(context.Context) (*sqlite.Store, error)) (*secret.Store, string, error) {
	by, err := a.administrator(ctx)
	if err != nil {
		return nil, "", err
	}
	if _, err := open(ctx); err != nil {
		return nil, "", err
	}
	kept, err := a.service.Secrets()
	return kept, by, err
}

func (a *app) setSecret(ctx context.Context, name string, asJSON bool) error {
	if err := secret.CheckName(name); err != nil {
		return usagef("%v", err)
	}
	kept, by, err := a.ownSecrets(ctx, a.database)
	if err != nil {
		return err
	}
	value, err := a.readSecret(name)
	if err != nil {
		return err
	}
	err = kept.Set(name, value)
	if errors.Is(err, secret.ErrInvalid) {
		return usagef("%v", err)
	}
	if err != nil {
		return err
	}
	if err := a.recordSecret(ctx, service.KindSecretSet, name, by); err != nil {
		return err
	}
	if n := len(bytes.TrimSpace(value)); n < guard.MinSecretBytes {
		a.notice("%s has fewer than %d bytes, so it is masked nowhere: it would be found in ordinary words", name, guard.MinSecretBytes)
	}
	if asJSON {
		info, err := infoOf(kept, name)
		if err != nil {
			return err
		}
		return printJSON(a.out, info, true)
	}
	fmt.Fprintf(a.out, "%s: stored; the configuration may say ${secret:%s}\n", name, name)
	return nil
}

// readSecret reads a value: hidden from a terminal, else from standard input.
func (a *app) readSecret(name string) ([]byte, error) {
	if a.inTerminal {
		return a.typedHidden("Secret " + name)
	}
	value, err := io.ReadAll(io.LimitReader(a.in, secret.MaxValueBytes+3))
	if err != nil {
		return nil, fmt.Errorf("standard input: %v", err)
	}
	value = bytes.TrimSuffix(bytes.TrimSuffix(value, []byte("\n")), []byte("\r"))
	if len(value) == 0 {
		return nil, usagef("standard input is empty: there is no secret to store")
	}
	return value, nil
}

// maxTyped is what a terminal cuts a line at.
const maxTyped = 4095

// typedHidden asks for a value, without an echo. Ctrl-c leaves the terminal as it
// was and nothing stored.
func (a *app) typedHidden(what string) ([]byte, error) {
	fd := int(a.in.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, fmt.Errorf("the terminal: %v; give it on standard input", err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	quit := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-quit:
		case s := <-signals: // a read of a terminal cannot be called off
			_ = term.Restore(fd, before)
			fmt.Fprintln(a.err)
			code, _ := meaning(s, "")
			os.Exit(code)
		}
	})
	terminal.Drop(a.in)
	fmt.Fprintf(a.err, "%s (it is not shown): ", what)
	value, err := term.ReadPassword(fd)
	signal.Stop(signals)
	close(quit)
	watch.Wait()
	fmt.Fprintln(a.err)
	switch {
	case errors.Is(err, io.EOF):
		return nil, &exitError{code: exitCanceled, message: "nothing was stored"}
	case err != nil:
		return nil, fmt.Errorf("the terminal: %v", err)
	case len(value) >= maxTyped:
		return nil, usagef("a terminal gives at most %d bytes; give what is longer on standard input", maxTyped-1)
	case len(value) == 0:
		return nil, usagef("nothing was typed: there is nothing to store")
	}
	return value, nil
}

func (a *app) listSecrets(ctx context.Context, asJSON bool) error {
	kept, _, err := a.ownSecrets(ctx, a.databaseToRead)
	if err != nil {
		return err
	}
	list, err := kept.List()
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(a.out, append([]secret.Info{}, list...), true)
	}
	rows := [][]string{{"SECRET", "CREATED", "CHANGED"}}
	now := time.Now()
	for _, s := range list {
		rows = append(rows, []string{s.Name, shortTime(s.Created.Local(), now), shortTime(s.Changed.Local(), now)})
	}
	a.outStyle.Table(a.out, rows)
	return nil
}

// infoOf is what the list has of a secret; not found if there is none.
func infoOf(kept *secret.Store, name string) (secret.Info, error) {
	list, err := kept.List()
	if err != nil {
		return secret.Info{}, err
	}
	for _, info := range list {
		if info.Name == name {
			return info, nil
		}
	}
	return secret.Info{}, toolcrib.ErrNotFound
}

func (a *app) removeSecret(ctx context.Context, name string, asJSON bool) error {
	kept, by, err := a.ownSecrets(ctx, a.database)
	if err != nil {
		return err
	}
	info, err := infoOf(kept, name)
	if err == nil {
		err = kept.Remove(name)
	}
	if errors.Is(err, toolcrib.ErrNotFound) {
		return toolcrib.Errorf(toolcrib.CodeNotFound, "there is no secret %s; `toolcrib secret list` shows what there is", guard.Visible(name))
	}
	if err != nil {
		return err
	}
	if err := a.recordSecret(ctx, service.KindSecretRemoved, name, by); err != nil {
		return err
	}
	if asJSON {
		return printJSON(a.out, info, true)
	}
	fmt.Fprintf(a.out, "%s: removed\n", name)
	return nil
}

// recordSecret keeps in the system journal that a secret was changed, and by whom.
func (a *app) recordSecret(ctx context.Context, kind toolcrib.Kind, name, by string) error {
	payload, err := json.Marshal(map[string]string{"name": name, "by": by})
	if err != nil {
		return err
	}
	return a.store.AppendSystem(ctx, store.SystemEvent{Kind: kind, Payload: payload})
}

// completeSecrets completes the names of secrets.
func (a *app) completeSecrets(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	kept, _, err := a.ownSecrets(cmd.Context(), a.databaseToRead)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list, err := kept.List()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, s := range list {
		names = append(names, s.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
