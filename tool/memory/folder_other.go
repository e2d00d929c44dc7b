//go:build !unix

package memory

import (
	"context"
	"os"
)

// lockFolder cannot hold back other processes here; those of this one wait for each
// other, and a note is still replaced as a whole.
func lockFolder(context.Context, *os.Root) (release func(), err error) { return func() {}, nil }
