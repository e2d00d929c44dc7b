package sqlite

import (
	"bufio"
	"os"
	"strings"
)

// mountLines bounds the lines that are read from the list of mounts.
const mountLines = 100_000

var mountPoint = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// fileSystemOf returns the type of the mount that contains path, such as nfs4 or fuse.sshfs, from the
// list of mounts (proc_pid_mountinfo(5)). It is the mount with the longest mount point, and the last
// one of those with the same.
func fileSystemOf(path string) (kind string, err error) {
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
		point := mountPoint.Replace(fields[4])
		if len(point) >= longest && (path == point || point == "/" || strings.HasPrefix(path, point+"/")) {
			kind, _, _ = strings.Cut(source, " ")
			longest = len(point)
		}
	}
	return kind, lines.Err()
}
