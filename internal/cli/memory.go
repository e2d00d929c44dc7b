package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/service"
)

func (a *app) memoryListCommand(cmd *cobra.Command) {
	a.answering(cmd, a.knowing, func(c call) (any, func(), error) {
		list, err := c.Notes(c, c.who)
		return list, func() {
			now := time.Now()
			table(a, "NOTE|BYTES|CHANGED|DATA|TEXT", list, func(n *service.Note) []string {
				const most = 60
				text := strings.Join(strings.Fields(n.Content), " ")
				if r := []rune(text); len(r) > most {
					text = string(r[:most]) + "…"
				}
				return []string{n.Key, render.Number(int64(len(n.Content))), shortTime(n.Changed.Local(), now), dataText(n), text}
			})
		}, err
	})
}

func dataText(n *service.Note) string {
	if n.Untrusted {
		return "untrusted"
	}
	return ""
}

func (a *app) memoryShowCommand(cmd *cobra.Command) {
	cmd.ValidArgsFunction = a.completingKnown(noteKeys)
	a.answering(cmd, a.knowing, func(c call) (any, func(), error) {
		n, err := c.Note(c, c.who, c.arg())
		return n, func() {
			if n.Untrusted {
				a.notice("a run wrote this after it had read untrusted data")
			}
			fmt.Fprintln(a.out, guard.Visible(strings.TrimRight(n.Content, "\n")))
		}, noNote(err, c.arg())
	})
}

func noteKeys(c call) ([]string, error) {
	list, err := c.Notes(c, c.who)
	return listed(list, func(n service.Note) string { return n.Key }, err)
}

func noNote(err error, key string) error {
	return hint(err, key, "`toolcrib memory list` shows them all")
}

func (a *app) memoryEditCommand(cmd *cobra.Command) {
	cmd.ValidArgsFunction = a.completingKnown(noteKeys)
	a.answering(cmd, a.knowing, func(c call) (any, func(), error) {
		before, err := c.Note(c, c.who, c.arg())
		if toolcrib.CodeOf(err) == toolcrib.CodeNotFound {
			before, err = service.Note{Key: c.arg()}, nil
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
		after, err := c.SetNote(c, c.who, before, text)
		return after, func() { a.says(after.Key, render.Count(len(text), "byte")+" written") }, err
	})
}

// edited is what a person makes of a text: in their editor on a terminal, else what
// standard input holds.
func (a *app) edited(ctx context.Context, text string) ([]byte, error) {
	if !a.inTerminal || !a.errTerminal {
		return a.readStdin()
	}
	editor := "vi"
	if runtime.GOOS == "windows" {
		editor = "notepad"
	}
	editor = cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), editor)
	dir, err := os.MkdirTemp("", "toolcrib-note-") // for nobody else to read
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
	cmd.Args, cmd.ValidArgsFunction = cobra.ArbitraryArgs, a.completingKnown(noteKeys)
	a.answering(cmd, a.knowing, func(c call) (any, func(), error) {
		if *all == (len(c.args) > 0) {
			return nil, nil, usagef("give keys of notes, or --all")
		}
		var list []service.Note
		var err error
		if *all {
			list, err = c.Notes(c, c.who)
		}
		for _, key := range slices.Compact(slices.Sorted(slices.Values(c.args))) {
			n, missing := c.Note(c, c.who, key)
			list, err = append(list, n), errors.Join(err, noNote(missing, key))
		}
		if err == nil && len(list) > 0 {
			err = a.sure(*yes, "Remove "+render.Count(len(list), "note")+" for good?", "nothing was removed")
		}
		if err != nil {
			return nil, nil, err
		}
		gone := []string{}
		for _, n := range list {
			if _, err := c.SetNote(c, c.who, n, ""); err != nil {
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
