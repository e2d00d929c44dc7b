package store

// ToolCount counts the calls of a tool in all runs, also in those that were
// pruned since.
type ToolCount struct {
	Calls  int64 `json:"calls"`
	Errors int64 `json:"errors,omitempty"` // of these, such as failed or were refused
}

// maxToolName is the length of a tool's name in bytes.
const maxToolName = 64

// toolName reports whether a tool can have this name: [A-Za-z0-9_-]{1,64}.
func toolName(name string) bool {
	if name == "" || len(name) > maxToolName {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
