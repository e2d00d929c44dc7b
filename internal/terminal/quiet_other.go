//go:build !linux && !darwin && !windows

package terminal

import (
	"os"
	"time"
)

func drop(*os.File) error { return nil }

// quietly only waits: what was typed ahead cannot be told here.
func quietly(_ *os.File, more func(typed bool) bool) error {
	for more(false) {
		time.Sleep(step)
	}
	return nil
}
