package cli

import (
	"bytes"
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

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/secret"
)

func (a *app) secretSetCommand(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usagef("the value is not an argument, where others could see it: type it when asked, or give it on "+
				"standard input\nSee: %s --help", cmd.CommandPath())
		}
		return positional(cmd, args)
	}
	cmd.ValidArgsFunction = a.completeSecrets()
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		name := c.args[0]
		if err := secret.CheckName(name); err != nil { // before the value is asked for
			return nil, nil, err
		}
		if _, err := a.administering(c); err != nil {
			return nil, nil, err
		}
		s, who, err := a.changing(c) // the keys are made with the database
		if err != nil {
			return nil, nil, err
		}
		var value []byte
		if a.inTerminal {
			value, err = a.typedHidden("Secret " + name)
		} else {
			value, err = a.pipedSecret("secret to store", secret.MaxValueBytes)
		}
		if err != nil {
			return nil, nil, err
		}
		info, err := s.SetSecret(c, who, name, value)
		if err == nil && len(bytes.TrimSpace(value)) < guard.MinSecretBytes {
			a.notice("%s has fewer than %d bytes, so it is masked nowhere: it would be found in ordinary words", name,
				guard.MinSecretBytes)
		}
		return info, func() { a.says(name, "stored; the configuration may say ${secret:"+name+"}") }, err
	})
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

func (a *app) secretListCommand(cmd *cobra.Command) {
	a.answering(cmd, a.reading, func(c call) (any, func(), error) {
		list, err := c.Secrets(c.who)
		return list, func() {
			now := time.Now()
			table(a, "SECRET|CREATED|CHANGED", list, func(s *secret.Info) []string {
				return []string{s.Name, shortTime(s.Created.Local(), now), shortTime(s.Changed.Local(), now)}
			})
		}, err
	})
}

func (a *app) secretRemoveCommand(cmd *cobra.Command) {
	cmd.ValidArgsFunction = a.completeSecrets()
	a.answering(cmd, a.changing, func(c call) (any, func(), error) {
		info, err := c.RemoveSecret(c, c.who, c.args[0])
		return info, func() { a.says(c.args[0], "removed") }, hint(err, c.args[0],
			"`toolcrib secret list` shows them all")
	})
}

// completeSecrets completes the names of secrets.
func (a *app) completeSecrets() cobra.CompletionFunc {
	return a.completing(func(c call) ([]string, error) {
		list, err := c.Secrets(c.who)
		return listed(list, func(s secret.Info) string { return s.Name }, err)
	})
}
