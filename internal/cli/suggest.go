package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError adds to an error about flags what was probably meant.
func flagError(cmd *cobra.Command, err error) error {
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

// maxSuggest bounds the work of comparing words.
const maxSuggest = 64

// nearest returns the name that is so near to a word that it was probably meant;
// "" = none is.
func nearest(word string, names []string) string {
	best, most := "", 1+max(1, len(word)/3)
	if len(word) > maxSuggest {
		return ""
	}
	for _, name := range names {
		if len(name) > maxSuggest {
			continue
		}
		if d := distance(strings.ToLower(word), strings.ToLower(name)); d < most {
			best, most = name, d
		}
	}
	return best
}

// distance is the number of letters to add, drop, change or swap with their
// neighbour (optimal string alignment).
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := last[j-1]
			if a[i-1] != b[j-1] {
				cost++
			}
			next[j] = min(cost, last[j]+1, next[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, last = last, next
	}
	return last[len(b)]
}
