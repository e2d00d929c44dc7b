package jail

import (
	"errors"
	"os"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// Seccomp reports whether system calls can be filtered on this architecture.
const Seccomp = seccompArch != 0

// noNewPrivileges makes set-user-ID programs run without additional privileges.
func noNewPrivileges() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }

// notDumpable prevents programs of the same user from reading and changing the memory of this process.
func notDumpable() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// dropCapabilities removes all capabilities of root from all threads. From the calling thread, which starts the
// programs, it also removes those that a program could regain.
func dropCapabilities() error {
	for c := uintptr(0); ; c++ {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil {
			break // the previous one was the last
		}
		// A process that may not drop them has none that a program could regain.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); has == 1 && err != nil && !errors.Is(err, unix.EPERM) {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil &&
		!errors.Is(err, unix.EINVAL) {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

const read = ll.AccessFSReadFile

// apart separates folders from files, to which fewer access rights apply. It leaves out missing paths.
func apart(paths []string) (folders, files []string) {
	for _, path := range paths {
		switch info, err := os.Stat(path); {
		case err != nil:
		case info.IsDir():
			folders = append(folders, path)
		default:
			files = append(files, path)
		}
	}
	return folders, files
}

// restrict applies the rules to this process and to all that it starts, as far as the kernel supports them. It returns
// an error if the kernel has no Landlock.
func (r *Rules) restrict() error {
	if r.ABI < 1 {
		return errors.New("this kernel has no Landlock")
	}
	var granted []landlock.Rule
	grant := func(folder, file landlock.AccessFSSet, paths []string) {
		folders, files := apart(paths)
		granted = append(granted,
			landlock.PathAccess(folder, folders...).IgnoreIfMissing(), landlock.PathAccess(file, files...).IgnoreIfMissing())
	}
	grant(read|ll.AccessFSReadDir|ll.AccessFSExecute, read|ll.AccessFSExecute, r.Read)
	grant(read|ll.AccessFSReadDir, read, r.Data)
	grant(ll.AccessFSReadDir, 0, r.Folders)
	grant(read|ll.AccessFSReadDir, read, r.Watched)
	folders, files := apart(r.Write)
	made := landlock.AccessFSSet(
		ll.AccessFSMakeDir | ll.AccessFSMakeReg | ll.AccessFSMakeSym | ll.AccessFSMakeFifo | ll.AccessFSMakeSock,
	)
	write := landlock.PathAccess(read|ll.AccessFSReadDir|ll.AccessFSExecute|ll.AccessFSWriteFile|ll.AccessFSTruncate|
		ll.AccessFSRemoveFile|ll.AccessFSRemoveDir|made, folders...).IgnoreIfMissing()
	if r.ABI >= 2 {
		write = write.WithRefer() // files may be moved between folders of the workspace
	}
	granted = append(granted, write,
		landlock.PathAccess(read|ll.AccessFSExecute|ll.AccessFSWriteFile|ll.AccessFSTruncate, files...).IgnoreIfMissing(),
		landlock.PathAccess(read|ll.AccessFSWriteFile, os.DevNull).IgnoreIfMissing())
	config := landlock.V11
	if !r.Closed {
		config.HandledAccessNet = 0
	}
	// All rules in one layer: a second one of this kind would prevent moving files.
	if err := config.BestEffort().Restrict(granted...); err != nil || len(r.Watched) == 0 {
		return err
	}
	return r.restrictThread()
}

// restrictThread prevents the calling thread, and processes that it starts, from reading Watched.
func (r *Rules) restrictThread() error {
	attributes := ll.RulesetAttr{HandledAccessFS: read | ll.AccessFSReadDir}
	if r.ABI >= 2 {
		attributes.HandledAccessFS |= ll.AccessFSRefer
	}
	set, err := ll.LandlockCreateRuleset(&attributes, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(set) }()
	add := func(access uint64, paths []string) {
		for _, path := range paths {
			at, openErr := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
			if openErr != nil {
				continue // no access is granted to what cannot be opened
			}
			rule := ll.PathBeneathAttr{ParentFd: at, AllowedAccess: access}
			err = errors.Join(err, ll.LandlockAddPathBeneathRule(set, &rule, 0), unix.Close(at))
		}
	}
	for _, paths := range [][]string{r.Read, r.Data, r.Write, {os.DevNull}} {
		folders, files := apart(paths)
		add(read|ll.AccessFSReadDir, folders)
		add(read, files)
	}
	add(ll.AccessFSReadDir, r.Folders)
	if r.ABI >= 2 {
		add(ll.AccessFSRefer, []string{"/"})
	}
	if err != nil {
		return err
	}
	return ll.LandlockRestrictSelf(set, 0)
}
