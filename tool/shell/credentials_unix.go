//go:build unix

package shell

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/tool/internal/beneath"
)

// credentials returns the names of files and folders in which toolchains and package managers keep credentials: the
// last element of the path, or the last two.
func credentials() []string {
	return strings.Fields(".npmrc npmrc pnpm/rc .yarnrc .yarnrc.yml bunfig.toml .bunfig.toml pip.conf pip.ini .pypirc " +
		"credentials credentials.toml credentials.json .netrc _netrc .git-credentials go/env " +
		"gradle.properties settings-security.xml .gemrc gemrc auth.json nuget.config NuGet.Config NuGet/NuGet.Config " +
		".docker/config.json .kube/config .aws .azure .config/gcloud gh/hosts.yml .ssh .gnupg .env hooks.json")
}

// Bounds of the search for credentials in a mounted tree. Home folders have several versions of a toolchain, other
// folders have one.
const (
	maxLooked       = 20_000 // entries
	depthOfOne      = 2      // depth of folders searched outside the home folder
	depthOfVersions = 5      // and in it
)

// notLooked reports whether a folder of a toolchain has only the many files that it was shipped with.
func notLooked(name string) bool {
	return slices.Contains([]string{
		".cache", "bin", "cache", "checkouts", "doc", "include", "index", "lib", "lib64", "libexec", "man", "objects",
		"sbin", "share", "shims", "site-packages", "src",
	}, name)
}

// private returns the files and folders with credentials in a tree that a sandbox shows.
func private(root string, depth int) (found []string) {
	known, left := credentials(), maxLooked
	if notLooked(filepath.Base(root)) {
		return nil
	}
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if left--; left < 0 {
			return fs.SkipAll
		}
		name := filepath.Base(path)
		switch {
		case err != nil || path == root:
		case slices.Contains(known, name), slices.Contains(known, filepath.Base(filepath.Dir(path))+"/"+name),
			signsIn(path):
			found = append(found, unlinked(path))
			if entry.IsDir() {
				return fs.SkipDir
			}
		case !entry.IsDir():
		case notLooked(name), strings.Count(path[len(root):], "/") >= depth:
			if npm := filepath.Join(unlinked(filepath.Join(path, "node_modules/npm")), "npmrc"); exists(npm) {
				found = append(found, unlinked(npm))
			}
			return fs.SkipDir
		}
		return nil
	})
	return found
}

// unlinked returns path or, if it is a link, its target: nothing can be mounted over a link.
func unlinked(path string) string {
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return beneath.Real(path)
	}
	return path
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// maxSettings bounds the files that signsIn reads, in bytes; longer ones are hidden.
const maxSettings = 1 << 20

// signsIn reports whether a file may contain credentials. It checks files that programs need or that are numerous, and
// so are not hidden by name: the settings of Maven, which does not start without them, and files with the URLs of a
// git repository.
func signsIn(path string) bool {
	var marks []string
	switch name := filepath.Base(path); {
	case name == "settings.xml":
		marks = []string{"<password", "<passphrase", "<privateKey", "<value"}
	case name == "FETCH_HEAD", name == "config" && filepath.Base(filepath.Dir(path)) == ".git":
		marks = []string{"@", "extraheader"}
	default:
		return false
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() > maxSettings {
		return true
	}
	data, err := os.ReadFile(path)
	comment := regexp.MustCompile(`(?s)<!--.*?-->`)
	data = bytes.ToLower(comment.ReplaceAll(data, nil))
	return err != nil || slices.ContainsFunc(marks, func(mark string) bool {
		return bytes.Contains(data, []byte(strings.ToLower(mark)))
	})
}

// keepPrivate collects the paths to be hidden in the trees that programs read: credentials, and the repositories in the
// module cache of Go, whose configuration may contain some.
func (i *installed) keepPrivate() {
	roots := append([]string{"/usr/etc", "/usr/local/etc", "/usr/lib/node_modules/npm", "/opt"}, i.read...)
	slices.Sort(roots)
	for _, root := range slices.Compact(roots) {
		depth := depthOfOne
		if i.home != "" && within(root, i.home) {
			depth = depthOfVersions
		}
		if root != i.mods {
			i.private = append(i.private, private(root, depth)...)
		}
	}
	if vcs := filepath.Join(i.mods, "cache/vcs"); i.mods != "" && exists(vcs) {
		i.private = append(i.private, vcs)
	}
	for _, path := range slices.Clone(i.private) {
		i.private = append(i.private, beneath.Real(path)) // another tree may show it by its real path
	}
	slices.Sort(i.private)
	i.private = slices.Compact(i.private)
}
