package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/secret"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/people"
)

func (a *app) memoryListCommand(cmd *cobra.Command) {
	listing(a, cmd, a.knowing, "NOTE|BYTES|CHANGED|DATA|TEXT",
		func(c call) ([]people.Note, error) { return c.People.Notes(c, c.who) },
		func(n *people.Note) []string {
			data := ""
			if n.Untrusted {
				data = "untrusted"
			}
			return []string{
				n.Key, render.Number(int64(len(n.Content))), day(n.Changed), data, service.OneLine(n.Content, 60),
			}
		})
}

func (a *app) memoryShowCommand(cmd *cobra.Command) {
	a.answering(cmd, a.knowing, func(c call) (any, func(), error) {
		n, err := c.People.Note(c, c.who, c.arg())
		return n, func() {
			if n.Untrusted {
				a.notice("a run wrote this after it had read untrusted data")
			}
			fmt.Fprintln(a.out, guard.Visible(strings.TrimRight(n.Content, "\n")))
		}, noSuch("memory", err, c.arg())
	})
}

func noteKeys(c call) ([]string, error) {
	list, err := c.People.Notes(c, c.who)
	return listed(list, func(n people.Note) string { return n.Key }, err)
}

func (a *app) memoryEditCommand(cmd *cobra.Command) {
	a.answering(cmd, a.knowing, func(c call) (any, func(), error) {
		before, err := c.People.Note(c, c.who, c.arg())
		if toolcrib.CodeOf(err) == toolcrib.CodeNotFound {
			before, err = people.Note{Key: c.arg()}, nil
		}
		var data []byte
		if err == nil {
			data, err = a.edited(c, before.Content)
		}
		if err != nil {
			return nil, nil, err
		}
		text := strings.TrimRight(string(data), "\n")
		switch {
		case !utf8.ValidString(text):
			return nil, nil, usagef("a note must be valid UTF-8")
		case strings.TrimSpace(text) == "":
			return nil, nil, usagef("the note would be empty; to remove it: %s memory forget KEY", a.self())
		case text == strings.TrimRight(before.Content, "\n"):
			return before, func() { a.says(before.Key, "unchanged") }, nil
		}
		after, err := c.People.SetNote(c, c.who, before, text)
		return after, func() { a.says(after.Key, render.Count(len(text), "byte")+" written") }, err
	})
}

// edited returns a text after the user's changes: made in their editor on a terminal, otherwise read
// from standard input.
func (a *app) edited(ctx context.Context, text string) ([]byte, error) {
	if !a.inTerminal || !a.errTerminal {
		return a.readStdin()
	}
	editor := "vi"
	if runtime.GOOS == "windows" {
		editor = "notepad"
	}
	editor = cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), editor)
	dir, err := os.MkdirTemp("", "toolcrib-note-") // readable only by this user
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "note.md")
	if text != "" {
		text += "\n"
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, err
	}
	words := append(strings.Fields(editor), path)
	program := exec.CommandContext(ctx, words[0], words[1:]...)
	program.Stdin, program.Stdout, program.Stderr = a.in, os.Stdout, os.Stderr
	if err := program.Run(); err != nil {
		return nil, fmt.Errorf("the editor %s: %w; nothing was written", words[0], err)
	}
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxStdin {
		err = usagef("the note would have more than %d bytes", maxStdin)
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

func (a *app) memoryForgetCommand(cmd *cobra.Command) {
	all := cmd.Flags().Bool("all", false, "")
	yes := cmd.Flags().Bool("yes", false, "")
	cmd.Args = cobra.ArbitraryArgs
	a.answering(cmd, a.knowing, func(c call) (any, func(), error) {
		if *all == (len(c.args) > 0) {
			return nil, nil, usagef("give keys of notes, or --all")
		}
		var list []people.Note
		var err error
		if *all {
			list, err = c.People.Notes(c, c.who)
		}
		for _, key := range slices.Compact(slices.Sorted(slices.Values(c.args))) {
			n, missing := c.People.Note(c, c.who, key)
			list, err = append(list, n), errors.Join(err, noSuch("memory", missing, key))
		}
		if err == nil && len(list) > 0 {
			err = a.sure(*yes, "Remove "+render.Count(len(list), "note")+" for good?", "nothing was removed")
		}
		if err != nil {
			return nil, nil, err
		}
		gone := []string{}
		for _, n := range list {
			if _, err := c.People.SetNote(c, c.who, n, ""); err != nil {
				return nil, nil, err
			}
			gone = append(gone, n.Key)
		}
		return gone, func() {
			for _, key := range gone {
				a.says(key, "removed")
			}
		}, nil
	})
}

func (a *app) secretSetCommand(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usagef("the value is not an argument, where others could see it: type it when asked, or give it on "+
				"standard input\nSee: %s --help", cmd.CommandPath())
		}
		if err := positional(cmd, args); err != nil {
			return err
		}
		return secret.CheckName(args[0])
	}
	// The keys are created with the database.
	a.answering(cmd, a.forAdministrators(a.changing), func(c call) (any, func(), error) {
		name, value, err := c.args[0], []byte(nil), error(nil)
		if a.inTerminal {
			value, err = a.typedHidden("Secret " + name)
		} else {
			value, err = a.pipedSecret("secret to store", secret.MaxValueBytes)
		}
		if err != nil {
			return nil, nil, err
		}
		info, err := c.Env.SetSecret(c, c.who, name, value)
		switch n := len(bytes.TrimSpace(value)); {
		case err != nil:
		case n < guard.MinSecretBytes:
			a.notice("%s has fewer than %d bytes, so it is masked nowhere: it would be found in ordinary words", name,
				guard.MinSecretBytes)
		case n < guard.MinRefusedBytes:
			a.notice("%s has fewer than %d bytes: it is masked in what models read, but a call whose arguments hold it is "+
				"not refused, and is stored as it is", name, guard.MinRefusedBytes)
		}
		return info, func() { a.says(name, "stored; the configuration may say ${secret:"+name+"}") }, err
	})
}

// maxTyped is the length at which a terminal truncates a line.
const maxTyped = 4095

// pipedSecret reads from standard input a value that must not be an argument. One newline at the end is
// removed.
func (a *app) pipedSecret(what string, most int64) ([]byte, error) {
	value, err := io.ReadAll(io.LimitReader(a.in, most+3))
	if err != nil {
		return nil, fmt.Errorf("standard input: %v", err)
	}
	value = bytes.TrimSuffix(bytes.TrimSuffix(value, []byte("\n")), []byte("\r"))
	if len(value) == 0 {
		return nil, usagef("standard input is empty: there is no %s", what)
	}
	return value, nil
}

// typedHidden reads a value without echo. Ctrl-c restores the terminal and stores nothing.
func (a *app) typedHidden(what string) ([]byte, error) {
	value, err := a.typedOrNot(what)
	if err == nil && len(value) == 0 {
		err = usagef("nothing was typed: there is nothing to store")
	}
	return value, err
}

// typedOrNot is like typedHidden, but accepts an empty value.
func (a *app) typedOrNot(what string) ([]byte, error) {
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
		case s := <-signals: // reading a terminal cannot be canceled
			_ = term.Restore(fd, before) // the process ends here
			fmt.Fprintln(a.err)
			code, _ := meaning(s, "")
			os.Exit(code)
		}
	})
	var value []byte
	show, err := terminal.Hide(a.in)
	if err == nil {
		fmt.Fprintf(a.err, "%s (it is not shown): ", what)
		value, err = term.ReadPassword(fd)
		show()
	}
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
	}
	return value, nil
}

func (a *app) secretListCommand(cmd *cobra.Command) {
	listing(a, cmd, a.reading, "SECRET|CREATED|CHANGED",
		func(c call) ([]secret.Info, error) { return c.Env.Secrets(c.who) },
		func(s *secret.Info) []string { return []string{s.Name, day(s.Created), day(s.Changed)} })
}

func (a *app) secretRemoveCommand(cmd *cobra.Command) {
	a.answering(cmd, a.changing, func(c call) (any, func(), error) {
		info, err := c.Env.RemoveSecret(c, c.who, c.args[0])
		return info, func() { a.says(c.args[0], "removed") }, noSuch("secret", err, c.args[0])
	})
}
