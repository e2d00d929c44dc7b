//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package secret

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// nonblock keeps the opening of a pipe from waiting for its other end.
const nonblock = syscall.O_NONBLOCK

var errBusy = errors.New("locked")

// lock takes the lock of a file, which ends with the process at the latest.
func lock(path string, patience time.Duration) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|nonblock, 0o600)
	if err != nil {
		return nil, err
	}
	give := time.NewTimer(patience)
	defer give.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-again.C:
		case <-give.C:
			_ = f.Close()
			return nil, errBusy
		}
	}
}

// noRoom tells whether an error says that the disk, a quota or a limit is full.
func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
