package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// habitual returns the command that a word means in other programs, or "".
func habitual(cmd *cobra.Command, word string) string {
	if cmd.HasParent() {
		return meant(word, commandNames(cmd), map[string]string{
			"ls": "list", "view": "show", "get": "show", "rm": "remove|prune|forget", "delete": "remove|prune|forget",
			"log": "events", "logs": "events", "watch": "events", "accept": "approve", "reject": "deny",
		})
	}
	return meant(word, commandNames(cmd), map[string]string{
		"exec": "run", "ask": "run", "prompt": "run", "resume": "runs resume", "logs": "runs list", "history": "runs list",
		"approve": "approvals approve", "deny": "approvals deny", "login": "secret set", "auth": "secret set",
		"keys": "secret set", "status": "doctor",
	})
}

// meantRuns reports whether the words of a prompt look like a command for stored runs: run list, run show last.
func meantRuns(cmd *cobra.Command, args []string) bool {
	runs, _, err := cmd.Root().Find([]string{"runs"})
	if err != nil || len(args) == 0 || !slices.Contains(commandNames(runs), args[0]) {
		return false
	}
	return len(args) == 1 || len(args) == 2 && (args[1] == "last" || strings.HasPrefix(args[1], "run_"))
}

// habitualFlag returns the flag among names that another one is in other programs, with its
// value where that is meant, or "".
func habitualFlag(flag string, names []string) string {
	return meant(flag, names, map[string]string{
		"max-turns": "max-iterations", "allowedTools": "tools", "allowed-tools": "tools", "output-format": "output",
		"o": "output", "dangerously-skip-permissions": "approve all", "yolo": "approve all", "full-auto": "approve all",
		"yes": "approve all", "y": "approve all|yes", "r": "session", "resume": "session", "cid": "session",
		"cwd": "workspace", "cd": "workspace", "C": "workspace", "a": "attach", "file": "attach", "f": "attach",
		"n": "limit", "L": "limit", "v": "version", "V": "version",
	})
}

// meant returns the first of what a word may mean that begins with one of names, or "".
func meant(word string, names []string, habits map[string]string) string {
	for text := range strings.SplitSeq(habits[word], "|") {
		if name, _, _ := strings.Cut(text, " "); slices.Contains(names, name) {
			return text
		}
	}
	return ""
}
