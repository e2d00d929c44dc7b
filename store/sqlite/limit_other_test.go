//go:build !unix

package sqlite_test

import (
	"context"
	"errors"
)

func playLimited(context.Context, string) error { return errors.New("not here") }
