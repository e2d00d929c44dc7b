//go:build !linux

package worker

import "errors"

// renameNew fails, since there is no such operation here.
func renameNew(string, string) error { return errors.ErrUnsupported }
