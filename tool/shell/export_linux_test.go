//go:build amd64 || arm64

package shell

import (
	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/shell/internal/jail"
)

// DeniedCalls are the system calls that no job may make.
func DeniedCalls() []uint32 { return jail.DeniedCalls() }

// BoundCaches removes build caches until they have at most so many bytes.
func BoundCaches(made toolcrib.Tool, most int64) { made.(*shell).options.boundCaches(most) }
