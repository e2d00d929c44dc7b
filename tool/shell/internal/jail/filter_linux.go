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

// denyValue refuses a call if the argument with this index has this value.
func (f *filter) denyValue(call, argument, value uint32) {
	f.unless(unix.BPF_JEQ, call, 4)
	f.load(offsetArgs + 8*argument)
	f.unless(unix.BPF_JEQ, value, 1)
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

// pairsOnly refuses a pair of sockets that could send to others: one that is not connected for good.
func (f *filter) pairsOnly() {
	f.unless(unix.BPF_JEQ, unix.SYS_SOCKETPAIR, 7)
	f.load(offsetArgs + 8)
	f.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, 0xf)
	for _, kind := range []uint32{unix.SOCK_STREAM, unix.SOCK_SEQPACKET} {
		f.unless(unix.BPF_JEQ, kind, 1)
		f.answer(unix.SECCOMP_RET_ALLOW)
	}
	f.answer(errno(unix.EACCES))
}

// readOnly refuses what Landlock lets a program change although it can write no file: the attributes of files of the
// user, the priority and the limits of other processes, and, by ioctl, settings of file systems.
func (f *filter) readOnly() {
	f.deny(unix.EPERM, attributeCalls()...)
	f.deny(unix.EPERM, unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT,
		unix.SYS_UTIMENSAT, unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
		unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT, unix.SYS_FILE_SETATTR,
		unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETSCHEDULER,
		unix.SYS_SCHED_SETATTR, unix.SYS_SCHED_SETAFFINITY, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES)
	f.unless(unix.BPF_JEQ, unix.SYS_PRLIMIT64, 4)
	f.load(offsetArgs)
	f.unless(unix.BPF_JEQ, 0, 1) // the calling process
	f.answer(unix.SECCOMP_RET_ALLOW)
	f.answer(errno(unix.EPERM))
	const terminals, sockets = 'T', 0x89 // kinds of ioctl
	f.unless(unix.BPF_JEQ, unix.SYS_IOCTL, 8)
	f.load(offsetArgs + 8)
	f.add(unix.BPF_ALU|unix.BPF_RSH|unix.BPF_K, 8)
	f.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, 0xff)
	for _, kind := range []uint32{terminals, sockets} {
		f.unless(unix.BPF_JEQ, kind, 1)
		f.answer(unix.SECCOMP_RET_ALLOW)
	}
	f.answer(errno(unix.ENOTTY))
}

// callFilter returns the filter for a job. It refuses changes of the machine and its kernel, access to other
// processes, new namespaces (in which the job would be root again), anonymous files in memory, and set-user-ID and
// set-group-ID bits, which would outlast the job. If the job is offline it refuses sockets, with a loopback only those
// that internetOnly refuses, and those that pairsOnly refuses. A strict job has no System V and POSIX IPC, whose memory
// is not counted, and cannot lock files for itself. It cannot make the calls of readOnly if only Landlock confines it,
// and not a namespace with the loopback, or if it owns the devices, as root does. Programs of another architecture
// cannot make any system call.
func (j *Job) callFilter() filter {
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
	case j.Loopback:
		f.internetOnly()
	case j.Offline:
		f.deny(unix.EACCES, unix.SYS_SOCKET)
	}
	if j.Loopback || j.Offline {
		f.pairsOnly()
	}
	if j.Strict {
		f.denyFlags(unix.SYS_FLOCK, 1, unix.LOCK_EX) // an exclusive lock or a lease makes programs outside wait
		f.denyValue(unix.SYS_FCNTL, 1, unix.F_SETLEASE)
		f.deny(unix.ENOSYS, unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_SEMGET, unix.SYS_SEMOP,
			unix.SYS_SEMTIMEDOP, unix.SYS_SEMCTL, unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
			unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK)
	}
	if j.Strict && (!j.Loopback || unix.Geteuid() == 0) {
		f.readOnly()
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
func (j *Job) filterCalls() error {
	f := j.callFilter()
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	if err := noNewPrivileges(); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(f)
	// The kernel may lack filters, as Report.Seccomp says. A strict job needs them.
	if errno == 0 || !j.Strict && (errno == unix.ENOSYS || errno == unix.EINVAL) {
		return nil
	}
	return errno
}
