package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError adds to an error about flags what was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	text := err.Error()
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

// distance is the number of letters to add, drop or change (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
