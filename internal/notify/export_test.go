package notify

import (
	"maps"
	"slices"
)

// Schemes are those of the messengers, sorted.
func Schemes() []string { return slices.Sorted(maps.Keys(messengers)) }
