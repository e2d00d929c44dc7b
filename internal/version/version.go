// Package version identifies the build of toolcrib.
package version

import (
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// Both are set only by scripts/release, with -ldflags -X.
var version, commit string

// Version returns the version of this build, such as 1.2.0: that of the release, or of the module that
// was fetched; dev for a build of a checkout.
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

// fromModule converts the version of a module, which is "(devel)" or empty for a checkout.
func fromModule(module string) string {
	if module == "" || module == "(devel)" {
		return "dev"
	}
	return strings.TrimPrefix(module, "v")
}

// Commit returns the first 12 digits of the commit that was built, with "+dirty" if files had been
// changed since, or "" if unknown.
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

// Go returns the version of Go that built this program, such as go1.26.8.
func Go() string { return runtime.Version() }

// Platform returns the operating system and architecture, such as linux/amd64.
func Platform() string { return runtime.GOOS + "/" + runtime.GOARCH }
