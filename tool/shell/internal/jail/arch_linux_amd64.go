package jail

import "golang.org/x/sys/unix"

const seccompArch = unix.AUDIT_ARCH_X86_64

// modeOf returns the system calls that may create a device, with the index of the argument with the mode.
func modeOf() map[uint32]uint32 { return map[uint32]uint32{unix.SYS_MKNOD: 1, unix.SYS_MKNODAT: 2} }

// rightsOf returns the system calls that set the mode of a file, with the index of the argument with the mode.
func rightsOf() map[uint32]uint32 {
	return map[uint32]uint32{
		unix.SYS_CHMOD: 1, unix.SYS_FCHMOD: 1, unix.SYS_FCHMODAT: 2, unix.SYS_FCHMODAT2: 2, unix.SYS_CREAT: 1,
	}
}

// flagsOf returns the system calls that may create a file, with the index of the argument with the flags. The mode is
// the next argument.
func flagsOf() map[uint32]uint32 { return map[uint32]uint32{unix.SYS_OPEN: 1, unix.SYS_OPENAT: 2} }

// attributeCalls returns the system calls of this architecture only that change attributes of files.
func attributeCalls() []uint32 {
	return []uint32{
		unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
	}
}
