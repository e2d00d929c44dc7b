package config

import (
	"maps"
	"slices"
)

// BoundNames returns the names of the tools of the bus, sorted.
func (c *Config) BoundNames() []string { return slices.Sorted(maps.Keys(c.Tools.Bound)) }
