package version

import (
	"runtime/debug"
	"testing"
)

func TestVersion_OfAModule(t *testing.T) {
	for module, want := range map[string]string{"": "dev", "(devel)": "dev", "v1.2.3": "1.2.3", "v0.0.0-20260102030405-abcdefabcdef": "0.0.0-20260102030405-abcdefabcdef"} {
		if got := fromModule(module); got != want {
			t.Errorf("%q: %q, want %q", module, got, want)
		}
	}
	if Version() == "" {
		t.Error("a build without a version")
	}
}

func TestCommit_OfBuildSettings(t *testing.T) {
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	modified := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for _, tt := range []struct {
		settings []debug.BuildSetting
		want     string
	}{
		{nil, ""},
		{[]debug.BuildSetting{modified}, ""},
		{[]debug.BuildSetting{revision, {Key: "vcs.modified", Value: "false"}}, "0123456789ab"},
		{[]debug.BuildSetting{modified, revision}, "0123456789ab+dirty"},
	} {
		if got := fromSettings(tt.settings); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.settings, got, tt.want)
		}
	}
}
