package terminal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

func TestUTF8(t *testing.T) {
	for _, c := range []struct {
		all, ctype, lang string
		want             bool
	}{
		{"", "", "", true},
		{"", "", "C.UTF-8", true},
		{"", "", "C.utf8", true},
		{"", "", "de_DE.UTF-8@euro", true},
		{"", "", "de_DE", true},  // nobody knows
		{"", "UTF-8", "C", true}, // macOS
		{"", "", "C", false},
		{"", "", "POSIX", false},
		{"", "", "de_DE.ISO-8859-1", false},
		{"", "", "ja_JP.eucJP", false},
		{"C", "", "en_US.UTF-8", false},
		{"en_US.UTF-8", "C", "C", true},
	} {
		env := map[string]string{"LC_ALL": c.all, "LC_CTYPE": c.ctype, "LANG": c.lang}
		if got := UTF8(func(name string) string { return env[name] }); got != c.want {
			t.Errorf("%v: %t, want %t", env, got, c.want)
		}
	}
}

// Signs are as wide as what replaces them, and all else stays.
func TestASCII(t *testing.T) {
	const text = "·…✓✗❯●■•→←↳≠∴│└─┼⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏█▉▊▋▌▍▎▏"
	f, err := os.Create(filepath.Join(t.TempDir(), "screen"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := (ASCII{f}).Write([]byte(text + "ü日")); n != len(text+"ü日") || err != nil {
		t.Error(n, err)
	}
	got, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if want := `-~+x>*#*>` + `<>!:|` + "`" + `-+|/-\|/-\|/########ü日`; string(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
	if a, b := ansi.StringWidth(text), ansi.StringWidth(Signs(text)); a != b {
		t.Errorf("%d columns, and then %d", a, b)
	}
}
