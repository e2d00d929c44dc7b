package render

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/toolcrib/toolcrib/internal/propose"
	"github.com/toolcrib/toolcrib/journal"
)

// The keys that answer questions. A key means the same wherever something is asked; not
// every question takes all of them.
const (
	KeyYes      = "y"
	KeyNo       = "n"
	KeyNoWhy    = "d"
	KeyEdit     = "e"
	KeyEach     = "o"
	KeyAlways   = "a"
	KeyRetry    = "r"
	KeyHappened = "h"
	KeyShow     = "s"
	KeyLater    = "l"
)

// Key is a key that answers a question, and what it says there.
type Key struct{ Name, Word string }

// CallKeys are the keys that answer an approval of these calls; each is true if they are
// asked about one by one.
func CallKeys(calls []journal.ApprovalItem, each bool) []Key {
	keys := []Key{{KeyYes, "yes"}, {KeyNo, "no"}, {KeyNoWhy, "no, and why"}, {KeyEdit, "edit"}}
	if many := len(calls) > 1; many && !each {
		keys = []Key{{KeyYes, "yes to all"}, {KeyNo, "no to all"}, {KeyNoWhy, "no, and why"}, {KeyEach, "one by one"}}
	}
	if !each && propose.Rememberable(calls) {
		word := "always in this run"
		if propose.Always(calls).Scope != journal.RememberRun {
			word = "always this line here"
		}
		keys = append(keys, Key{KeyAlways, word})
	}
	keys = append(keys, Key{KeyShow, "show all"})
	if !each {
		keys = append(keys, Key{KeyLater, "later"})
	}
	return keys
}

// DoubtKeys are the keys that say what became of a call in doubt; another is true if
// only another person may run it once more.
func DoubtKeys(another bool) []Key {
	keys := []Key{
		{KeyRetry, "run it once more"},
		{KeyHappened, "it happened"},
		{KeyNo, "it did not happen"},
		{KeyShow, "show all"},
		{KeyLater, "later"},
	}
	if another {
		return keys[1:]
	}
	return keys
}

// YesKeys are the keys of a question about something that is shown in part, or whole.
func YesKeys(cut bool) []Key {
	keys := []Key{{KeyYes, "yes"}, {KeyNo, "no"}}
	if cut {
		keys = append(keys, Key{KeyShow, "show all"})
	}
	return keys
}

// Pressed returns the key that a line names; "" if it is none of these. The words yes
// and no are as good as their keys.
func Pressed(keys []Key, line string) string {
	line = strings.ToLower(strings.TrimSpace(line))
	if line == "yes" || line == "no" {
		line = line[:1]
	}
	for _, k := range keys {
		if line == k.Name {
			return k.Name
		}
	}
	return ""
}

// keySeparator stands between the keys that are shown.
const keySeparator = " · "

// KeysText tells the keys.
func KeysText(keys []Key) string {
	words := make([]string, len(keys))
	for i, k := range keys {
		words[i] = k.Name + " " + k.Word
	}
	return strings.Join(words, keySeparator)
}

// KeyRows breaks a text that tells keys between them, to rows of at most width columns
// where that can be.
func KeyRows(text string, width int) []string {
	var rows []string
	row := ""
	for key := range strings.SplitSeq(text, keySeparator) {
		next := key
		if row != "" {
			next = row + keySeparator + key
		}
		if row != "" && ansi.StringWidth(next) > width {
			rows, next = append(rows, row), key
		}
		row = next
	}
	return append(rows, row)
}
