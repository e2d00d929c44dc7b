package config

// Unsupported is a key that is set and checked, but that this version does not
// act upon.
type Unsupported struct {
	Key      string // key path
	Position string // toolcrib.yaml:31
	Message  string // what that means and what to do
	// Safety is set where passing over the key would allow more than its author
	// meant: whatever would run under it must be refused.
	Safety bool
}

// Error returns "toolcrib.yaml:31: rules: …".
func (u Unsupported) Error() string { return u.Position + ": " + u.Key + ": " + u.Message }

// Unsupported returns the keys that are set to more than their default and not yet
// acted upon, in the order of the contract's sample.
func (c *Config) Unsupported() []Unsupported {
	var out []Unsupported
	add := func(set bool, key, message string, safety bool) {
		if set {
			out = append(out, Unsupported{Key: key, Position: c.Position(key), Message: message, Safety: safety})
		}
	}
	add(!c.Database.IsEmpty(), "database", "PostgreSQL is not supported by this version; remove the key to use SQLite", true)
	add(!c.Bus.URL.IsEmpty(), "bus.url", "a bus of your own is not supported by this version; remove the key", true)
	add(len(c.MCPServers) > 0, "mcpServers", "MCP servers are not supported by this version; their tools are missing", false)
	return out
}
