// Package version says which toolcrib this is.
package version

import (
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// Both are set by scripts/release with -ldflags -X, and only there.
var version, commit string

// Version is the version of this build, such as 1.2.0: as it was released, or as
// the module was fetched; dev for a build of a checkout.
func Version() string {
	if version != "" {
		return version
	}
	return built()
}

// built is the version of the module, which takes a while to read.
var built = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return fromModule(info.Main.Version)
	}
	return fromModule("")
})

// fromModule makes a version of a module's, which is "(devel)" or empty for a
// checkout.
func fromModule(module string) string {
	if module == "" || module == "(devel)" {
		return "dev"
	}
	return strings.TrimPrefix(module, "v")
}

// Commit is the first 12 digits of the commit that was built, with "+dirty" if
// files had been changed since; "" if the build does not know.
func Commit() string {
	if commit != "" {
		return commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return fromSettings(info.Settings)
}

func fromSettings(settings []debug.BuildSetting) string {
	var revision, dirty string
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + dirty
}

// Go is the version of Go that built this, such as go1.26.8.
func Go() string { return runtime.Version() }

// Platform is the operating system and architecture, such as linux/amd64.
func Platform() string { return runtime.GOOS + "/" + runtime.GOARCH }
