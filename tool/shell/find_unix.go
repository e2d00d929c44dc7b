//go:build unix

package shell

import (
	"os"

	"github.com/toolcrib/toolcrib"
)

// searchPath is the PATH of programs.
const searchPath = "/usr/local/bin:/usr/bin:/bin"

// findProgram finds a program by a fixed path. What is known by the built-in table
// is the system's own before one that was installed beside it.
func findProgram(name string, known bool) (string, error) {
	folders := []string{"/usr/local/bin", "/usr/bin", "/bin"}
	if known {
		folders = []string{"/usr/bin", "/bin", "/usr/local/bin"}
	}
	for _, folder := range folders {
		path := folder + "/" + name
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", toolcrib.Failf(toolcrib.NotFound, "program %s; it is allowed, but not installed in %s", quote(name), searchPath)
}
