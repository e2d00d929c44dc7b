package jail

import "golang.org/x/sys/unix"

const seccompArch = unix.AUDIT_ARCH_X86_64

// modeOf returns the calls that may make a device, and which argument is the mode.
func modeOf() map[uint32]uint32 { return map[uint32]uint32{unix.SYS_MKNOD: 1, unix.SYS_MKNODAT: 2} }

// rightsOf returns the calls that set the mode of a file, and which argument it is.
func rightsOf() map[uint32]uint32 {
	return map[uint32]uint32{
		unix.SYS_CHMOD: 1, unix.SYS_FCHMOD: 1, unix.SYS_FCHMODAT: 2, unix.SYS_FCHMODAT2: 2, unix.SYS_CREAT: 1,
	}
}

// flagsOf returns the calls that may make a file, and which argument the flags are; the mode is the one after it.
func flagsOf() map[uint32]uint32 { return map[uint32]uint32{unix.SYS_OPEN: 1, unix.SYS_OPENAT: 2} }
