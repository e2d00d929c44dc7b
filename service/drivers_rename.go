//go:build !linux

package service

import "errors"

// renameNew renames a file, unless there is one of the new name: elsewhere nothing does.
func renameNew(string, string) error { return errors.ErrUnsupported }
