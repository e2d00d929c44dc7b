package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/store"
)

// The exit codes of contract §3.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitParked   = 3
	exitLimit    = 4
	exitRefused  = 5 // of tools call
	exitHangup   = 129
	exitCanceled = 130
	exitTerm     = 143
)

// exitError ends the command with a code that does not follow from what is wrong.
// Message goes to standard error; empty = everything was said already.
type exitError struct {
	code    int
	message string
}

func (e *exitError) Error() string { return e.message }

func usagef(format string, args ...any) error {
	return toolcrib.Errorf(toolcrib.CodeBadRequest, format, args...)
}

// exits are the exit codes of the errors that have another than exitFailed.
var exits = map[toolcrib.Code]int{toolcrib.CodeBadRequest: exitUsage, toolcrib.CodeSchemaMismatch: exitUsage}

// errorText is an error for people. It begins with its code where that says more than the
// exit code.
func errorText(err error) string {
	text := err.Error()
	var e *toolcrib.Error
	if !errors.As(err, &e) || text == "" {
		return text
	}
	word := string(e.Code)
	switch e.Code {
	case toolcrib.CodeNotFound:
		word = toolcrib.ErrNotFound.Error()
	case toolcrib.CodeConflict, toolcrib.CodeForbidden, toolcrib.CodeUnauthorized, toolcrib.CodeTokenInvalid,
		toolcrib.CodeTokenRevoked, toolcrib.CodeTokenExpired, toolcrib.CodeScopeInsufficient, toolcrib.CodeRateLimited:
	default:
		return text
	}
	// Said once, also where what was wrapped says it.
	return word + ": " + strings.TrimSuffix(strings.TrimPrefix(text, word+": "), ": "+word)
}

// hint adds to an error what to do about a name that nothing has.
func hint(err error, name, text string) error {
	var e *toolcrib.Error
	if name == "last" || !errors.As(err, &e) || e.Code != toolcrib.CodeNotFound {
		return err
	}
	return toolcrib.Errorf(e.Code, "%s; %s", e.Message, text)
}

// silent ends the command with a code and without a word.
func silent(code int) error {
	if code == exitOK {
		return nil
	}
	return &exitError{code: code}
}

// codeOf tells the exit code of an error.
func codeOf(err error) int {
	var exit *exitError
	var broken config.Errors
	var value config.Error
	var cancelled *agent.CancelError
	var untrusted *trust.UntrustedError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &broken), errors.As(err, &value), errors.As(err, &untrusted):
		return exitUsage
	case errors.As(err, &cancelled), errors.Is(err, context.Canceled):
		return exitCanceled
	case errors.Is(err, errTerminated):
		return exitTerm
	case errors.Is(err, errHangup):
		return exitHangup
	}
	if code, ok := exits[toolcrib.CodeOf(err)]; ok {
		return code
	}
	return exitFailed
}

// storeFailed reports whether the store itself could not do its work.
func storeFailed(err error) bool {
	var failed *store.Error
	return errors.As(err, &failed)
}

// flagError adds to an error about flags what was probably meant. A command that does
// not exist has no flags either, so it is what is wrong: also behind the flag, unless a
// word there is a command. args are those of the whole line.
func flagError(cmd *cobra.Command, args []string, err error) error {
	words := cmd.Flags().Args()
	if len(words) == 0 && cmd.HasAvailableSubCommands() {
		words = wordsAfter(cmd, args)
		if slices.ContainsFunc(words, func(word string) bool { return slices.Contains(commandNames(cmd), word) }) {
			words = nil
		}
	}
	if len(words) > 0 && cmd.HasAvailableSubCommands() {
		return group(cmd, words)
	}
	text := err.Error()
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		text = fmt.Sprintf("--%s: must be %s, not %q", value.GetFlag().Name, kindOf(value.GetFlag()), value.GetValue())
		if value.GetFlag().Value.Type() == "func" { // it says itself what is wrong
			text = fmt.Sprintf("--%s: %v", value.GetFlag().Name, value.Unwrap())
		}
	}
	if name, ok := strings.CutPrefix(text, "unknown flag: --"); ok {
		var names []string
		collect := func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		}
		cmd.Flags().VisitAll(collect)
		cmd.InheritedFlags().VisitAll(collect)
		if near := nearest(name, names); near != "" {
			text += fmt.Sprintf("; did you mean --%s?", near)
		}
	}
	return usagef("%s\nSee: %s --help", text, cmd.CommandPath())
}

// wordsAfter returns the words of a command line other than flags, values of known flags,
// and the names of the command.
func wordsAfter(cmd *cobra.Command, args []string) (words []string) {
	for i := 0; i < len(args); i++ {
		name, isFlag := strings.CutPrefix(args[i], "--")
		switch f := cmd.Flag(name); {
		case name == "" && isFlag:
			return append(words, args[i+1:]...)
		case f != nil && isFlag && f.NoOptDefVal == "":
			i++ // its value
		case !strings.HasPrefix(args[i], "-"):
			words = append(words, args[i])
		}
	}
	for _, name := range strings.Fields(cmd.CommandPath())[1:] {
		words = words[slices.Index(words, name)+1:]
	}
	return words
}

// kindOf says what values a flag takes.
func kindOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int", "int64":
		return "a whole number"
	case "uint64":
		return "a whole number from 0"
	case "float64":
		return "a number"
	case "bool":
		return "true or false"
	}
	return "another value"
}

// nearest returns the name that was probably meant by a word, or "".
func nearest(word string, names []string) string { return guard.Nearest(word, names) }
