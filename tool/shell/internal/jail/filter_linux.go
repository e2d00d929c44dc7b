//go:build amd64 || arm64

package jail

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filter is a program for seccomp(2), whose instructions decide whether a system call is allowed.
type filter []unix.SockFilter

const (
	offsetCall = 0 // offsets in struct seccomp_data
	offsetArch = 4
	offsetArgs = 16

	calledByX32 = 0x40000000 // bit in the numbers of system calls of the x32 ABI
	newSpaces   = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
)

func errno(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }

func (f *filter) add(code uint16, k uint32) {
	*f = append(*f, unix.SockFilter{Code: code, K: k})
}

func (f *filter) load(offset uint32) { f.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset) }

// unless skips the given number of instructions if comparing the loaded value with value is false.
func (f *filter) unless(kind uint16, value uint32, instructions uint8) {
	*f = append(*f, unix.SockFilter{Code: unix.BPF_JMP | kind | unix.BPF_K, K: value, Jf: instructions})
}

func (f *filter) answer(what uint32) { f.add(unix.BPF_RET|unix.BPF_K, what) }

// deny makes system calls fail with an error.
func (f *filter) deny(e unix.Errno, calls ...uint32) {
	for _, call := range calls {
		f.unless(unix.BPF_JEQ, call, 1)
		f.answer(errno(e))
	}
}

// denyKinds refuses a call that creates a device or sets othersRights. argument is the index of the mode.
func (f *filter) denyKinds(call, argument uint32) {
	f.unless(unix.BPF_JEQ, call, 9)
	f.load(offsetArgs + 8*argument)
	f.unless(unix.BPF_JSET, othersRights, 1)
	f.answer(errno(unix.EPERM))
	f.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, unix.S_IFMT)
	f.deny(unix.EPERM, unix.S_IFCHR, unix.S_IFBLK)
	f.answer(unix.SECCOMP_RET_ALLOW)
}

// othersRights are the mode bits that make a program run as its owner or group, also outside the sandbox.
const othersRights = unix.S_ISUID | unix.S_ISGID

// denyMaking refuses a call that opens a file if it creates one with othersRights. flags is the index of the flags,
// which decide whether the mode, the next argument, is used.
func (f *filter) denyMaking(call, flags uint32) {
	f.unless(unix.BPF_JEQ, call, 6)
	f.load(offsetArgs + 8*flags)
	f.unless(unix.BPF_JSET, unix.O_CREAT|unix.O_TMPFILE&^unix.O_DIRECTORY, 3)
	f.load(offsetArgs + 8*(flags+1))
	f.unless(unix.BPF_JSET, othersRights, 1)
	f.answer(errno(unix.EPERM))
	f.answer(unix.SECCOMP_RET_ALLOW)
}

// denyFlags refuses a call if the argument with this index has one of these flags.
func (f *filter) denyFlags(call, argument, flags uint32) {
	f.unless(unix.BPF_JEQ, call, 4)
	f.load(offsetArgs + 8*argument)
	f.unless(unix.BPF_JSET, flags, 1)
	f.answer(errno(unix.EPERM))
	f.answer(unix.SECCOMP_RET_ALLOW)
}

// internetOnly refuses all sockets except internet sockets and NETLINK_ROUTE, which programs use to list addresses:
// the workspace may have a Unix socket of a program outside the sandbox.
func (f *filter) internetOnly() {
	f.unless(unix.BPF_JEQ, unix.SYS_SOCKET, 10)
	f.load(offsetArgs)
	for _, domain := range []uint32{unix.AF_INET, unix.AF_INET6} {
		f.unless(unix.BPF_JEQ, domain, 1)
		f.answer(unix.SECCOMP_RET_ALLOW)
	}
	f.unless(unix.BPF_JEQ, unix.AF_NETLINK, 3)
	f.load(offsetArgs + 8*2)
	f.unless(unix.BPF_JEQ, unix.NETLINK_ROUTE, 1)
	f.answer(unix.SECCOMP_RET_ALLOW)
	f.answer(errno(unix.EACCES))
}

// callFilter returns the filter for a job. It refuses changes of the machine and its kernel, access to other
// processes, new namespaces (in which the job would be root again), anonymous files in memory, and set-user-ID and
// set-group-ID bits, which would outlast the job. With offline it refuses sockets, with loopback only those that
// internetOnly refuses; socketpair is always allowed. Programs of another architecture cannot make any system call.
func callFilter(offline, loopback bool) filter {
	var f filter
	f.load(offsetArch)
	f.unless(unix.BPF_JEQ, seccompArch, 1)
	f.add(unix.BPF_JMP|unix.BPF_JA, 1)
	f.answer(errno(unix.EPERM))
	f.load(offsetCall)
	f.unless(unix.BPF_JGE, calledByX32, 1)
	f.answer(errno(unix.EPERM))
	for call, flags := range flagsOf() { // first, because they are the most frequent
		f.denyMaking(call, flags)
	}
	f.deny(unix.EPERM, DeniedCalls()...)
	// Programs fall back to other calls if these fail with ENOSYS.
	f.deny(unix.ENOSYS, unix.SYS_CLONE3, unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET, unix.SYS_OPENAT2)
	f.deny(unix.EACCES, unix.SYS_IO_URING_SETUP) // io_uring bypasses the filter
	switch {
	case loopback:
		f.internetOnly()
	case offline:
		f.deny(unix.EACCES, unix.SYS_SOCKET)
	}
	f.denyFlags(unix.SYS_CLONE, 0, newSpaces)
	for call, argument := range rightsOf() {
		f.denyFlags(call, argument, othersRights)
	}
	for call, argument := range modeOf() {
		f.denyKinds(call, argument)
	}
	f.answer(unix.SECCOMP_RET_ALLOW)
	return f
}

// DeniedCalls returns the system calls that are refused regardless of their arguments.
func DeniedCalls() []uint32 {
	return []uint32{
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
		unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
		unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_SETNS, unix.SYS_UNSHARE,
		unix.SYS_REBOOT, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE,
		unix.SYS_DELETE_MODULE, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_SYSLOG,
		unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL,
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD,
	}
}

// filterCalls applies the filter to all threads and to the processes that they start.
func filterCalls(offline, loopback bool) error {
	f := callFilter(offline, loopback)
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	if err := noNewPrivileges(); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(f)
	switch errno {
	case 0, unix.ENOSYS, unix.EINVAL: // the kernel may lack filters, as Report.Seccomp says
		return nil
	}
	return errno
}
