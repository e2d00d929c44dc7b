//go:build amd64 || arm64

package jail

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filter is a program of seccomp(2): instructions that look at a system call and answer
// whether it is made. What no instruction answers is made.
type filter []unix.SockFilter

const (
	offsetCall = 0 // in struct seccomp_data
	offsetArch = 4
	offsetArgs = 16

	calledByX32 = 0x40000000 // the bit of calls by another convention
	newSpaces   = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC |
		unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
)

func errno(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }

func (f *filter) add(code uint16, k uint32) {
	*f = append(*f, unix.SockFilter{Code: code, K: k})
}

func (f *filter) load(offset uint32) { f.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset) }

// unless passes over the next instructions if the loaded value is not (or with less,
// below) the one given.
func (f *filter) unless(kind uint16, value uint32, instructions uint8) {
	*f = append(*f, unix.SockFilter{Code: unix.BPF_JMP | kind | unix.BPF_K, K: value, Jf: instructions})
}

func (f *filter) answer(what uint32) { f.add(unix.BPF_RET|unix.BPF_K, what) }

// deny answers calls with an error.
func (f *filter) deny(e unix.Errno, calls ...uint32) {
	for _, call := range calls {
		f.unless(unix.BPF_JEQ, call, 1)
		f.answer(errno(e))
	}
}

// denyKinds refuses a call that makes a device, or a file with others' rights: the mode is the argument of that number.
func (f *filter) denyKinds(call, argument uint32) {
	f.unless(unix.BPF_JEQ, call, 9)
	f.load(offsetArgs + 8*argument)
	f.unless(unix.BPF_JSET, othersRights, 1)
	f.answer(errno(unix.EPERM))
	f.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, unix.S_IFMT)
	f.deny(unix.EPERM, unix.S_IFCHR, unix.S_IFBLK)
	f.answer(unix.SECCOMP_RET_ALLOW)
}

// othersRights are the bits of a mode that let a program run as its owner or group: such a file outlasts the sandbox.
const othersRights = unix.S_ISUID | unix.S_ISGID

// denyMaking refuses a call that opens a file if it makes one with others' rights. Without these flags its mode means
// nothing.
func (f *filter) denyMaking(call, flags uint32) {
	f.unless(unix.BPF_JEQ, call, 6)
	f.load(offsetArgs + 8*flags)
	f.unless(unix.BPF_JSET, unix.O_CREAT|unix.O_TMPFILE&^unix.O_DIRECTORY, 3)
	f.load(offsetArgs + 8*(flags+1))
	f.unless(unix.BPF_JSET, othersRights, 1)
	f.answer(errno(unix.EPERM))
	f.answer(unix.SECCOMP_RET_ALLOW)
}

// denyFlags refuses a call whose argument of that number has one of these flags.
func (f *filter) denyFlags(call, argument, flags uint32) {
	f.unless(unix.BPF_JEQ, call, 4)
	f.load(offsetArgs + 8*argument)
	f.unless(unix.BPF_JSET, flags, 1)
	f.answer(errno(unix.EPERM))
	f.answer(unix.SECCOMP_RET_ALLOW)
}

// internetOnly refuses sockets but those of the internet, and of the kernel's list of addresses:
// a file of the workspace may be the socket of a program outside.
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

// callFilter is what a job may not do: change the machine or what it is made of, look
// into other programs, make namespaces (in which it would be root again) or memory that
// is no file and no process's; give a file rights that outlast the job; and, offline, make a socket, with loopback
// one that is not the internet's. A pair of connected sockets can still be made. A program of another machine type
// cannot make any call.
func callFilter(offline, loopback bool) filter {
	var f filter
	f.load(offsetArch)
	f.unless(unix.BPF_JEQ, seccompArch, 1)
	f.add(unix.BPF_JMP|unix.BPF_JA, 1)
	f.answer(errno(unix.EPERM))
	f.load(offsetCall)
	f.unless(unix.BPF_JGE, calledByX32, 1)
	f.answer(errno(unix.EPERM))
	for call, flags := range flagsOf() { // first, since they are made most
		f.denyMaking(call, flags)
	}
	f.deny(unix.EPERM, DeniedCalls()...)
	// Programs do without these, but not without an answer.
	f.deny(unix.ENOSYS, unix.SYS_CLONE3, unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET, unix.SYS_OPENAT2)
	f.deny(unix.EACCES, unix.SYS_IO_URING_SETUP) // it makes calls that no filter sees
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

// DeniedCalls are the calls that are refused whatever their arguments are.
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

// filterCalls puts the filter on all threads and all that is started.
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
	case 0, unix.ENOSYS, unix.EINVAL: // a kernel without filters: Report.Seccomp says so
		return nil
	}
	return errno
}
