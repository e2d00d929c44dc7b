package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib/guard"
)

// flagError adds to an error about flags what was probably meant. A command that does
// not exist has no flags either, so it is what is wrong.
func flagError(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); len(args) > 0 && cmd.HasAvailableSubCommands() {
		return group(cmd, args)
	}
	text := err.Error()
	var value *pflag.InvalidValueError
	if errors.As(err, &value) {
		text = fmt.Sprintf("--%s: must be %s, not %q", value.GetFlag().Name, kindOf(value.GetFlag()), value.GetValue())
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

// nearest returns the name that is so near to a word that it was probably meant;
// "" = none is.
func nearest(word string, names []string) string { return guard.Nearest(word, names) }
