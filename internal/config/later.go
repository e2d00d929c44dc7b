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
	// Runs is set where a run may be another than its author meant, so that each run
	// says it too, and not only `config check`.
	Runs bool
}

// Error returns "toolcrib.yaml:31: rules: …".
func (u Unsupported) Error() string { return u.Position + ": " + u.Key + ": " + u.Message }

// Unsupported returns the keys that are set to more than their default and not yet
// acted upon, in the order of the contract's sample.
func (c *Config) Unsupported() []Unsupported {
	var out []Unsupported
	const safety, runs = 1, 2
	add := func(set bool, key, what, so string, kind int) {
		if set {
			out = append(out, Unsupported{
				Key: key, Position: c.Position(key), Message: what + " not supported by this version; " + so,
				Safety: kind == safety, Runs: kind == runs,
			})
		}
	}
	const missing = "these tools are missing"
	add(!c.Database.IsEmpty(), "database", "PostgreSQL is", "remove the key to use SQLite", safety)
	add(!c.Bus.URL.IsEmpty(), "bus.url", "a bus of your own is", "remove the key", safety)
	add(len(c.Tools.Bound) > 0, "tools.bound", "capabilities of a bus are", missing, runs)
	add(len(c.Channels) > 0, "channels", "channels are", "the tool message is missing, and no message starts a run", runs)
	return out
}
