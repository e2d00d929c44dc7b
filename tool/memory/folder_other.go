//go:build !unix

package memory

import (
	"context"
	"os"
)

const nonBlocking = 0

// lockFolder cannot hold back other processes here; those of this one wait for each
// other, and a note is still replaced as a whole.
func lockFolder(context.Context, *os.Root) (release func(), err error) { return func() {}, nil }

// syncFolder has nothing to do: the systems left sync the rename with the file.
func syncFolder(*os.Root) error { return nil }
