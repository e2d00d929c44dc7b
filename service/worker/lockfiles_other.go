//go:build !unix

package worker

import (
	"errors"
	"os"
)

// tryLock fails, since files cannot be locked here. No run is shown as interrupted.
func tryLock(*os.File) error { return errors.ErrUnsupported }
