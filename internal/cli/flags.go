package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Flags whose values are checked when they are read, for [pflag.FlagSet.Func]. flagError
// puts the name of the flag before what is wrong.

// filled takes a text that is not empty.
func filled(value *string) func(string) error {
	return func(text string) error {
		if *value = text; text == "" {
			return errors.New("must not be empty")
		}
		return nil
	}
}

// between takes a whole number.
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

// limitFlag bounds how long a list is.
func limitFlag(flags *pflag.FlagSet, value *int, usual, most int) {
	*value = usual
	flags.Func("limit", fmt.Sprintf("at most so many, up to %d", most), between(value, 1, most))
}

// more takes a number above 0.
func more[N int | int64 | float64](value *N) func(string) error {
	return func(text string) error {
		v, err := strconv.ParseFloat(text, 64)
		if *value = N(v); err != nil || !(v > 0 && v < 1e15) || float64(*value) != v {
			return fmt.Errorf("must be more than 0, not %q", text)
		}
		return nil
	}
}

// span takes a span of time that is not 0.
func span(value *time.Duration) func(string) error {
	return func(text string) (err error) {
		if *value, err = parseSpan(text); err != nil || *value == 0 {
			return errors.New("must be a span of time such as 90m, 24h or 30d")
		}
		return nil
	}
}

// since takes a time, or a span before now; "" is the zero time.
func since(value *time.Time) func(string) error {
	return func(text string) (err error) {
		if *value = (time.Time{}); text != "" {
			*value, err = parseSince(text, time.Now())
		}
		return err
	}
}

// parseSince reads a span before now, a date, or a time.
func parseSince(text string, now time.Time) (t time.Time, err error) {
	if before, err := parseSpan(text); err == nil {
		return now.Add(-before), nil
	}
	if at(&t)(text) != nil {
		err = fmt.Errorf("%q is not a span such as 24h or 7d, a date such as 2026-01-31, or a time (RFC 3339)", text)
	}
	return t, err
}

// at takes a time, or a date.
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

// parseSpan reads a span of time, also one in days.
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
		const most = 100 * 366 * time.Hour // times a day: no overflow
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

// choice adds a flag that takes one of some words, and is completed to them.
func choice(cmd *cobra.Command, name string, value *string, words ...string) {
	cmd.Flags().Func(name, "", func(text string) error {
		if *value = text; !slices.Contains(words, text) {
			return fmt.Errorf("must be one of %s, not %q", strings.Join(words, ", "), text)
		}
		return nil
	})
	completeWords(cmd, name, words...)
}

// oneOf refuses flags that exclude each other.
func oneOf(flags *pflag.FlagSet, names ...string) error {
	given := slices.DeleteFunc(names, func(name string) bool { return !flags.Changed(name) })
	if len(given) > 1 {
		return usagef("--%s: give one of them", strings.Join(given, " and --"))
	}
	return nil
}

// changedText is a flag's value if it was given.
func changedText(flags *pflag.FlagSet, name string, value *string) *string {
	if !flags.Changed(name) {
		return nil
	}
	return value
}

// changedList is a flag's list if it was given: one empty entry means none.
func changedList(flags *pflag.FlagSet, name string, list []string) *[]string {
	if !flags.Changed(name) {
		return nil
	}
	list = slices.DeleteFunc(slices.Clone(list), func(entry string) bool { return entry == "" })
	return &list
}

// completeWords completes a flag from fixed words.
func completeWords(cmd *cobra.Command, flag string, list ...string) {
	// The flag was just made, so this cannot fail.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp))
}

// completeFlag completes a flag as an argument is.
func completeFlag(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	// The flag was just made, so this cannot fail.
	_ = cmd.RegisterFlagCompletionFunc(flag,
		func(cmd *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
			return complete(cmd, nil, text)
		})
}
