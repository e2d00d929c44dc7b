package shell

import "github.com/toolcrib/toolcrib"

// confined refuses a line that would run without a sandbox, unless its principal is an administrator or is listed in
// tools.shell.unconfined. Programs of the built-in table are allowed, since their paths are judged. An approval changes
// nothing.
func (s *shell) confined(who toolcrib.Principal, p *plan) error {
	if p.Effect() == toolcrib.EffectReadOnly || s.options.Elsewhere || who.Admin ||
		s.options.Unconfined != nil && s.options.Unconfined(who) || s.report().sandboxed() {
		return nil
	}
	err := toolcrib.Failf(toolcrib.PermissionDenied, "without a sandbox, programs that are not in the built-in table, or that "+
		"do more than read, run for administrators only; use those of the table, or other tools")
	err.Hint = "Install bubblewrap; toolcrib doctor shows the sandbox. The key tools.shell.unconfined names users whose " +
		"programs may run without one, and so read and write whatever the server can: its keys, and the files of others."
	return err
}
