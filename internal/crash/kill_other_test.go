//go:build !unix

package crash

import (
	"errors"
	"os"
)

// Supported reports whether a process can kill itself here as kill -9 would.
const Supported = false

func killSelf() {}

func alive(string) (*os.File, error) { return nil, errors.ErrUnsupported }

func awaitDead(string) error { return nil }

func killed(*os.ProcessState) bool { return false }

func playHouse() {} // servers are stopped by signals
