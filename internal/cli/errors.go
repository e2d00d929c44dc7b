package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/store"
)

// The exit codes.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitParked   = 3
	exitLimit    = 4
	exitRefused  = 5 // for tools call
	exitHangup   = 129
	exitCanceled = 130
	exitTerm     = 143
)

// exitError ends the command with a code that does not follow from its error. Message goes to standard
// error; empty means that everything has been reported.
type exitError struct {
	code    int
	message string
}

func (e *exitError) Error() string { return e.message }

func usagef(format string, args ...any) error {
	return toolcrib.Errorf(toolcrib.CodeBadRequest, format, args...)
}

// exits maps error codes to exit codes other than exitFailed.
var exits = map[toolcrib.Code]int{
	toolcrib.CodeBadRequest: exitUsage, toolcrib.CodeSchemaMismatch: exitUsage,
	toolcrib.CodeTokenInvalid: exitUsage,
}

// errorText formats an error for people. It begins with the code if that says more than the exit code.
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
	// Wrapped errors may repeat the code.
	return word + ": " + strings.TrimSuffix(strings.TrimPrefix(text, word+": "), ": "+word)
}

// flagNamed is like [errorText], but names a request's field by the flag that set it.
func flagNamed(cmd *cobra.Command, err error) string {
	text := errorText(err)
	name, rest, _ := strings.Cut(text, ":")
	f := cmd.Flags().Lookup(strings.ReplaceAll(name, "_", "-"))
	if f == nil || !f.Changed || toolcrib.CodeOf(err) != toolcrib.CodeBadRequest {
		return text
	}
	return "--" + f.Name + ":" + rest
}

// hint adds advice to an error about an unknown name.
func hint(err error, name, text string) error {
	var e *toolcrib.Error
	if name == "last" || !errors.As(err, &e) || e.Code != toolcrib.CodeNotFound {
		return err
	}
	return toolcrib.Errorf(e.Code, "%s; %s", e.Message, text)
}

// noSuch adds to an error about an unknown item of a kind how to find it.
func noSuch(kind string, err error, name string) error {
	return hint(err, name, "`toolcrib "+kind+" list` shows them all")
}

// silent ends the command with a code and without a message.
func silent(code int) error {
	if code == exitOK {
		return nil
	}
	return &exitError{code: code}
}

// codeOf returns the exit code of an error.
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

// storeFailed reports whether the store itself failed.
func storeFailed(err error) bool {
	var failed *store.Error
	return errors.As(err, &failed)
}

// flagError adds the likely meaning to an error about flags. If the command itself does not exist, the
// error is about the command.
func flagError(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); len(words) > 0 && cmd.HasAvailableSubCommands() {
		return group(cmd, words)
	}
	text := err.Error()
	var value *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &value) && value.GetFlag().Value.Type() == "func": // its error is specific
		text = fmt.Sprintf("--%s: %v", value.GetFlag().Name, value.Unwrap())
	case errors.As(err, &value):
		text = fmt.Sprintf("--%s: must be %s, not %q", value.GetFlag().Name, kindOf(value.GetFlag()), value.GetValue())
	case errors.As(err, &unknown):
		var names []string
		collect := func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		}
		cmd.Flags().VisitAll(collect)
		cmd.InheritedFlags().VisitAll(collect)
		name := unknown.GetSpecifiedName()
		near := habitualFlag(name, names)
		if near == "" && unknown.GetSpecifiedShortnames() == "" { // a single letter is close to too many flags
			near = guard.Nearest(name, names)
		}
		switch run, _, failed := cmd.Root().Find([]string{"run"}); {
		case !cmd.HasParent() && failed == nil && len(name) == 1 && run.Flags().ShorthandLookup(name) != nil:
			text += fmt.Sprintf("; did you mean: toolcrib run -%s …?", name)
		case !cmd.HasParent() && failed == nil && run.Flags().Lookup(name) != nil:
			text += fmt.Sprintf("; did you mean: toolcrib run --%s …?", name)
		case near != "":
			text += fmt.Sprintf("; did you mean --%s?", near)
		}
	}
	return usagef("%s\nSee: %s --help", text, cmd.CommandPath())
}

// kindOf describes the values of a flag.
func kindOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int", "int64":
		return "a whole number"
	case "uint64":
		return "a whole number from 0"
	case "float64":
		return "a number"
	case "bool", "boolfunc":
		return "true or false"
	}
	return "another value"
}

// Flags whose values are checked when they are parsed, for [pflag.FlagSet.Func]. flagError adds the
// name of the flag to the error.

// filled accepts a text that is not empty.
func filled(value *string) func(string) error {
	return func(text string) error {
		if *value = text; text == "" {
			return errors.New("must not be empty")
		}
		return nil
	}
}

// between accepts an integer within bounds.
func between(value *int, least, most int) func(string) error {
	return func(text string) (err error) {
		if *value, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("must be a whole number, not %q", text)
		}
		if *value < least || *value > most {
			return fmt.Errorf("must be %d to %d, not %d", least, most, *value)
		}
		return nil
	}
}

// limitFlag adds the flag that bounds the length of a list.
func limitFlag(flags *pflag.FlagSet, value *int, usual, most int) {
	*value = usual
	flags.Func("limit", fmt.Sprintf("at most so many, up to %d", most), between(value, 1, most))
}

// more accepts a number above 0.
func more[N int | int64 | float64](value *N) func(string) error {
	return func(text string) error {
		v, err := strconv.ParseFloat(text, 64)
		if *value = N(v); err != nil || !(v > 0 && v < 1e15) || float64(*value) != v {
			return fmt.Errorf("must be more than 0 and less than 1e15, as a plain number, not %q", text)
		}
		return nil
	}
}

// span accepts a duration other than 0.
func span(value *time.Duration) func(string) error {
	return func(text string) (err error) {
		if *value, err = parseSpan(text); err != nil || *value == 0 {
			return errors.New("must be a span of time such as 90m, 24h or 30d")
		}
		return nil
	}
}

// since accepts a time, or a duration before now; "" is the zero time.
func since(value *time.Time) func(string) error {
	return func(text string) (err error) {
		if *value = (time.Time{}); text != "" {
			*value, err = parseSince(text, time.Now())
		}
		return err
	}
}

// parseSince parses a duration before now, a date, or a time.
func parseSince(text string, now time.Time) (t time.Time, err error) {
	if before, err := parseSpan(text); err == nil {
		return now.Add(-before), nil
	}
	if at(&t)(text) != nil {
		err = fmt.Errorf("%q is not a span such as 24h or 7d, a date such as 2026-01-31, or a time (RFC 3339)", text)
	}
	return t, err
}

// at accepts a time or a date.
func at(value *time.Time) func(string) error {
	return func(text string) (err error) {
		if *value, err = time.Parse(time.RFC3339, text); err != nil {
			*value, err = time.ParseInLocation(time.DateOnly, text, time.Local)
		}
		if err != nil {
			return fmt.Errorf("%q is not a date such as 2026-01-31, or a time (RFC 3339)", text)
		}
		return nil
	}
}

// parseSpan parses a duration, which may be in days.
func parseSpan(text string) (time.Duration, error) {
	days, inDays := strings.CutSuffix(text, "d")
	if inDays {
		text = days + "h"
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = errors.New("negative")
	}
	if inDays {
		const most = 100 * 366 * time.Hour // bounds the number of days: no overflow
		d = 24 * min(d, most)
	}
	return d, err
}

// sinceUntil adds --since and --until.
func sinceUntil(flags *pflag.FlagSet, from, to *time.Time) {
	for name, value := range map[string]*time.Time{"since": from, "until": to} {
		flags.Func(name, "", func(text string) error {
			err := since(value)(text)
			if err == nil && !from.IsZero() && !to.IsZero() && !from.Before(*to) {
				err = errors.New("--until must come after --since")
			}
			return err
		})
	}
}

// choice adds a flag that takes one of several words and completes to them.
func choice(cmd *cobra.Command, name string, value *string, words ...string) {
	oneWord(cmd, name, func(text string) { *value = text }, words...)
}

func oneWord(cmd *cobra.Command, name string, set func(text string), words ...string) {
	cmd.Flags().Func(name, "", func(text string) error {
		if set(text); !slices.Contains(words, text) {
			return fmt.Errorf("must be one of %s, not %q", strings.Join(words, ", "), text)
		}
		return nil
	})
	completeWords(cmd, name, words...)
}

// oneOf rejects flags that exclude each other.
func oneOf(flags *pflag.FlagSet, names ...string) error {
	given := slices.DeleteFunc(names, func(name string) bool { return !flags.Changed(name) })
	if len(given) > 1 {
		return usagef("--%s: give one of them", strings.Join(given, " and --"))
	}
	return nil
}

// optional adds a flag whose value is set only if the flag is given, even as "".
func optional(flags *pflag.FlagSet, name string, value **string) {
	flags.Func(name, "", func(text string) error {
		*value = &text
		return nil
	})
}

// optionalList adds a flag that may be repeated. A single empty value means an empty list.
func optionalList(flags *pflag.FlagSet, name string, value **[]string) {
	flags.Func(name, "", func(text string) error {
		if *value == nil {
			*value = new([]string)
		}
		return grow(*value, text)
	})
}

// grow appends to a list that is given in several flags. A single "" makes it empty, but not nil.
func grow(list *[]string, text string) error {
	if *list = append([]string{}, *list...); text != "" {
		*list = append(*list, text)
	}
	return nil
}

// switched adds a flag without a value that sets *value to to.
func switched(flags *pflag.FlagSet, name string, value **bool, to bool) {
	flags.BoolFunc(name, "", func(text string) error {
		on, err := strconv.ParseBool(text)
		if on || to {
			*value = new(on && to)
		}
		return err
	})
}

// completeWords completes a flag from fixed words.
func completeWords(cmd *cobra.Command, flag string, list ...string) {
	// The flag was just made, so this cannot fail.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp))
}

// completeFlag completes a flag like an argument.
func completeFlag(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	// The flag was just made, so this cannot fail.
	_ = cmd.RegisterFlagCompletionFunc(flag,
		func(cmd *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
			return complete(cmd, nil, text)
		})
}
