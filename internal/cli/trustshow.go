package cli

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	udiff "github.com/aymanbagabas/go-udiff"
	"golang.org/x/term"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/internal/terminal"
	"github.com/toolcrib/toolcrib/internal/trust"
)

// fileChanges is what files differ in from what they were.
type fileChanges struct {
	Added   []string `json:"added,omitempty"`
	Removed []string `json:"removed,omitempty"`
	Changed []string `json:"changed,omitempty"`
	Diff    string   `json:"diff,omitempty"` // of all of them

	files []fileChange
}

type fileChange struct{ what, name, diff string }

// compare returns what has changed. If old is nil, all files are new.
func compare(old, now map[string][]byte) *fileChanges {
	c := &fileChanges{}
	names := maps.Clone(old)
	if names == nil {
		names = map[string][]byte{}
	}
	maps.Copy(names, now)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		before, was := old[name]
		after, is := now[name]
		one := fileChange{what: "changed", name: name}
		switch {
		case !was:
			one.what, c.Added = "added", append(c.Added, name)
		case !is:
			one.what, c.Removed = "removed", append(c.Removed, name)
		case bytes.Equal(before, after):
			continue
		default:
			c.Changed = append(c.Changed, name)
		}
		one.diff = difference(one, before, after)
		c.files, c.Diff = append(c.files, one), c.Diff+one.diff
	}
	return c
}

// maxDiffed bounds what is compared line by line; what is larger is shown whole.
const maxDiffed = 1 << 20

// difference shows how a file has changed. Of a binary file it shows the size.
func difference(c fileChange, before, after []byte) string {
	from, to := "a/"+pathText(c.name), "b/"+pathText(c.name)
	if c.what == "added" {
		from = "/dev/null"
	}
	if c.what == "removed" {
		to = "/dev/null"
	}
	head := "--- " + from + "\n+++ " + to + "\n"
	switch {
	case !utf8.Valid(before) || !utf8.Valid(after):
		return head + fmt.Sprintf("no text: %d bytes before, %d bytes now\n", len(before), len(after))
	case len(before)+len(after) == 0:
		return head
	case len(before) > 0 && len(before)+len(after) <= maxDiffed:
		text, err := udiff.ToUnified(from, to, string(before), udiff.Lines(string(before), string(after)),
			udiff.DefaultContextLines)
		if err == nil {
			return text
		}
	}
	if c.what == "removed" {
		return head + fmt.Sprintf("%d bytes are gone\n", len(before))
	}
	return head + "+" + strings.ReplaceAll(strings.TrimSuffix(string(after), "\n"), "\n", "\n+") + "\n"
}

// changesText shows what has changed, file by file: their names stand before the gutter,
// where nothing in a file can put one.
func changesText(s render.Style, c *fileChanges) string {
	var b strings.Builder
	for _, f := range c.files {
		fmt.Fprintf(&b, "  %-8s %s\n%s", f.what, pathText(f.name),
			s.Preview(&toolcrib.Preview{Kind: "diff", Text: f.diff}, true))
	}
	return b.String()
}

// folderText shows the files of a folder that steer toolcrib: of a file that was trusted
// before the difference, unless whole is set; of any other file all. cut is set if
// something was left out.
func folderText(
	s render.Style, trusted trust.Store, dir string, files []trust.File, whole bool,
) (text string, cut bool) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s brings files that steer toolcrib:\n", pathText(dir))
	for _, f := range files {
		state := "new"
		switch f.State {
		case trust.Absent:
			continue
		case trust.Trusted:
			state = "trusted"
		case trust.Changed:
			state = "changed since you trusted it"
		}
		detail := f.Hash
		if f.Problem != "" {
			detail = f.Problem
		}
		fmt.Fprintf(&b, "%s %s  %s\n", s.Bold(pathText(f.Name)), state, s.Dim(pathText(detail)))
		if f.State == trust.Trusted {
			continue
		}
		var old map[string][]byte
		if last, ok := trusted.LastTrusted(dir, f.Name); ok && !whole {
			old, cut = last.Files, true
		}
		b.WriteString(changesText(s, compare(old, f.Content)))
	}
	return b.String(), cut
}

// agreesToFolder shows what a folder brings and asks whether it is trusted.
func (a *app) agreesToFolder(trusted trust.Store, dir string, files []trust.File) bool {
	return a.agreesTo(trust.Question(dir), func(whole bool) (string, bool) {
		return folderText(a.style, trusted, dir, files, whole)
	})
}

// agreesTo shows what would be trusted, page by page, and asks. shown tells it, whole or
// what has changed of it, and whether there is more of it than that. Nobody agrees to
// what was not shown.
func (a *app) agreesTo(question string, shown func(whole bool) (text string, cut bool)) (agreed bool) {
	a.asking(func(ctx context.Context, answers *terminal.Input) {
		for whole := false; ; whole = true {
			text, cut := shown(whole)
			if !a.pages(ctx, answers, text) {
				return
			}
			keys := render.YesKeys(cut)
			key := a.answer(ctx, answers, question, render.KeysText(keys)+"?", terminal.Calm, keys)
			if agreed = key == render.KeyYes; key != render.KeyShow {
				return
			}
		}
	})
	return agreed
}

// pages shows a text page by page; false = the person has said no before its end.
func (a *app) pages(ctx context.Context, answers *terminal.Input, text string) bool {
	_, height, err := term.GetSize(int(a.in.Fd()))
	if err != nil || height < 8 {
		height = 24
	}
	rows, most := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n"), height-4
	for page, of := 1, (len(rows)+most-1)/most; ; page++ {
		n := min(most, len(rows))
		fmt.Fprint(a.err, strings.TrimSuffix(strings.Join(rows[:n], ""), "\n")+"\n")
		if rows = rows[n:]; len(rows) == 0 {
			return true
		}
		at := fmt.Sprintf("page %d of %d ·", page, of)
		if a.answer(ctx, answers, at, "enter next page · n no?", 0, render.YesKeys(false)) == render.KeyNo {
			return false
		}
	}
}
