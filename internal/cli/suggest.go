package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolcrib/toolcrib/guard"
)

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
