//go:build unix

package memory

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// lockFolder waits until no other process writes in the folder, or ctx ends. The
// lock ends with the process that holds it, however that ends.
func lockFolder(ctx context.Context, dir *os.Root) (release func(), err error) {
	file, err := dir.OpenFile(lockName, os.O_RDWR|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOLCK) {
			// A file system without locks: this process still is one writer.
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(err, file.Close())
		}
		again := time.NewTimer(lockRetry)
		select {
		case <-ctx.Done():
			again.Stop()
			return nil, errors.Join(ctx.Err(), file.Close())
		case <-again.C:
		}
	}
}
