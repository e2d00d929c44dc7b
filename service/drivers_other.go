//go:build !unix

package service

import (
	"errors"
	"os"
)

// tryLock cannot tell here; no run is shown as interrupted.
func tryLock(*os.File) error { return errors.ErrUnsupported }
