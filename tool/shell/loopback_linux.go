package shell

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// namespaces returns copies of the files of the namespaces that the job joins, or nil if it has its own. If mayMake is
// true and there are none, the job makes them for the others, which wait until it calls handOver.
func (l *launcher) namespaces(mayMake bool) (files []*os.File) {
	of := l.shared
	if of == nil {
		return nil
	}
	of.mu.Lock()
	if mayMake && of.files == nil && !of.ended {
		l.making, l.Shares = of, true
		return nil
	}
	defer of.mu.Unlock()
	for _, f := range of.files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			closeAll(files...)
			return nil
		}
		files = append(files, os.NewFile(uintptr(fd), f.Name()))
	}
	return files
}

// userNamespace returns the arguments by which bubblewrap enters the user namespace of namespaces. There are none if it
// is that of this process, as for root.
func userNamespace(namespaces []*os.File) []string {
	if namespaces == nil {
		return nil
	}
	of, err := namespaces[0].Stat()
	own, ownErr := os.Stat("/proc/self/ns/user")
	if err == nil && ownErr == nil && os.SameFile(of, own) {
		return nil
	}
	return []string{"--userns", strconv.Itoa(firstCopied)}
}
