package sqlite

import (
	"bufio"
	"os"
	"strings"
	"syscall"
)

// The magic numbers of statfs(2) that are told apart.
const (
	magicFUSE = 0x65735546
	// mountLines bounds what is read of the list of mounts.
	mountLines = 100_000
)

// fileSystemOf names the file system of an existing path; "" = one that is not
// looked for.
func fileSystemOf(path string) (string, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return "", err
	}
	switch uint32(st.Type) { // its width differs from processor to processor
	case 0x6969:
		return "nfs", nil
	case 0x517b:
		return "smbfs", nil
	case 0xff534d42:
		return "cifs", nil
	case 0xfe534d42:
		return "smb2", nil
	case 0x5346414f, 0x6b414653:
		return "afs", nil
	case 0x00c36400:
		return "ceph", nil
	case 0x73757245:
		return "coda", nil
	case 0x564c:
		return "ncpfs", nil
	case 0x0bd00bd0:
		return "lustre", nil
	case 0x01161970:
		return "gfs2", nil
	case 0x7461636f:
		return "ocfs2", nil
	case magicFUSE:
		return mountKind(path)
	}
	return "", nil
}

// mountKind reads the type of the mount that holds path, such as fuse.sshfs, from
// the list of mounts (proc_pid_mountinfo(5)): the longest mount point counts, and
// of the same ones the last.
func mountKind(path string) (kind string, err error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // read only
	lines, longest := bufio.NewScanner(f), -1
	for n := 0; n < mountLines && lines.Scan(); n++ {
		mount, source, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(mount)
		if len(fields) < 5 {
			continue
		}
		point := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(fields[4])
		if len(point) >= longest && (path == point || point == "/" || strings.HasPrefix(path, point+"/")) {
			kind, _, _ = strings.Cut(source, " ")
			longest = len(point)
		}
	}
	return kind, lines.Err()
}
