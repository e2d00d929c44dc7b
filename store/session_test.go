package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

func TestC13_SessionName(t *testing.T) {
	for name, good := range map[string]bool{
		"work":                   true,
		"Größe 漢字 🙂":             true,
		"a.b":                    true,
		"telegram:42":            true,
		strings.Repeat("x", 256): true,
		strings.Repeat("x", 257): false,
		"":                       false,
		"..":                     false,
		"a..b":                   false,
		"a/b":                    false,
		`a\b`:                    false,
		"a\x00b":                 false,
		"a\nb":                   false,
		"a\x7f":                  false,
		"a\u0085b":               false, // a control character of C1
		"\xff":                   false,
		"ses_1":                  false, // it looks like an ID
	} {
		err := store.CheckSessionName(name)
		if (err == nil) != good {
			t.Errorf("%q: error %v, want good %v", name, err, good)
		}
		if err != nil && !strings.HasPrefix(name, store.SessionPrefix) && !errors.Is(err, store.ErrSessionName) {
			t.Errorf("%q: error %v, want ErrSessionName", name, err)
		}
	}
}

func TestTitleOf(t *testing.T) {
	for prompt, want := range map[string]string{
		"":                              "",
		" \n\t\n":                       "",
		"hello":                         "hello",
		"\n  two   words \nmore":        "two words",
		strings.Repeat("é", 80):         strings.Repeat("é", 80),
		strings.Repeat("é", 81):         strings.Repeat("é", 79) + "…",
		strings.Repeat("word ", 20_000): strings.Repeat("word ", 15) + "word…",
	} {
		if got := store.TitleOf(prompt); got != want {
			t.Errorf("title of %.40q: %q, want %q", prompt, got, want)
		}
	}
}

func TestSessionBusy(t *testing.T) {
	for _, c := range []struct {
		info store.SessionInfo
		busy bool
	}{
		{store.SessionInfo{}, false},
		{store.SessionInfo{LastRun: "run_a", Status: toolcrib.StatusCompleted}, false},
		{store.SessionInfo{LastRun: "run_a", Status: toolcrib.StatusCancelled}, false},
		{store.SessionInfo{LastRun: "run_a", Status: toolcrib.StatusRunning}, true},
		{store.SessionInfo{LastRun: "run_a", Status: toolcrib.StatusWaitingForApproval}, true},
	} {
		if got := c.info.Busy(); got != c.busy {
			t.Errorf("%+v: busy %v", c.info, got)
		}
	}
}
