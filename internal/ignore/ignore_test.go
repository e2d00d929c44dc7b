package ignore_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/toolcrib/toolcrib/internal/ignore"
)

// put writes files below dir; names that end with a slash are folders.
func put(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		if err == nil && strings.HasSuffix(name, "/") {
			err = os.MkdirAll(at, 0o755)
		} else if err == nil {
			err = os.WriteFile(at, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// ignored walks dir/real as tools do: the files and folders that are left out.
func ignored(t testing.TB, dir, real string) (out []string) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var walk func(l *ignore.List, at string)
	walk = func(l *ignore.List, at string) {
		folder, err := root.OpenRoot(at)
		if err != nil {
			t.Fatal(err)
		}
		defer folder.Close()
		l = l.Enter(folder, filepath.Join(dir, at))
		entries, err := fs.ReadDir(folder.FS(), ".")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name := filepath.Join(at, e.Name())
			switch {
			case e.Name() == ".git":
			case l.Ignores(filepath.Join(dir, name), e.IsDir()):
				out = append(out, filepath.ToSlash(name))
			case e.IsDir():
				walk(l, name)
			}
		}
	}
	walk(ignore.For(root, dir, real), filepath.FromSlash(real))
	slices.Sort(out)
	return out
}

// byGit asks git the same.
func byGit(t testing.TB, dir string) (out []string) {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		if d.Name() == ".git" {
			return filepath.SkipDir
		}
		rel, err := filepath.Rel(dir, path)
		paths = append(paths, filepath.ToSlash(rel))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("git", "-c", "core.excludesFile=", "-c", "core.ignoreCase=false", "check-ignore", "--no-index", "-z", "--stdin")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(strings.Join(paths, "\x00")+"\x00")
	found, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && !(isExit(err, &exit) && exit.ExitCode() == 1) {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(found), "\x00"), "\x00") {
		all[name] = true
	}
	for name := range all { // what lies in a folder that is ignored is not looked at
		if up := filepath.ToSlash(filepath.Dir(name)); name != "" && !all[up] {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func isExit(err error, exit **exec.ExitError) (ok bool) {
	*exit, ok = err.(*exec.ExitError) //nolint:errorlint // of exec itself
	return ok
}

func repository(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// tree is what each case of TestAsGit has, beside its ignore files.
var tree = []string{
	"a", "b.log", "debug.log", "café.txt", "-x", "#x", "!x", "sp ace", "tail ", "x{1}", "x1", "[x]", "back\\slash", "star*", "s]x", "s-x", "s/x",
	"log/", "log/b.log", "doc/a.txt", "doc/deep/a.txt", "doc/deep/er/a.txt", "build/out/x", "src/build/x", "src/build.c", "src/vendor/lib/y.go",
	"foo/bar", "foo/x/bar", "foo/x/y/bar", "fooz/bar", "n1/f", "nA/f", "n_/f", "n:/f", ".hidden/x", ".env", "UP.LOG",
}

func TestAsGit(t *testing.T) {
	t.Parallel()
	tests := map[string]map[string]string{
		"names":            {".gitignore": "*.log\nbuild\n"},
		"negation":         {".gitignore": "*.log\n!debug.log\n"},
		"folders":          {".gitignore": "log/\na/\n"},
		"anchored":         {".gitignore": "/build\n/b.log\nfoo/bar\n"},
		"two slashes":      {".gitignore": "//build\n/foo/\n"},
		"leading stars":    {".gitignore": "**/bar\n**/deep/a.txt\n"},
		"stars at the end": {".gitignore": "doc/**\n!doc/deep/\nfoo/**/\n"},
		"stars between":    {".gitignore": "foo/**/bar\n"},
		"star and slash":   {".gitignore": "foo/*\ndoc/*/a.txt\n"},
		"stars in a name":  {".gitignore": "b**g\n***.c\nd**c/a.txt\n"},
		"all but":          {".gitignore": "*\n!*/\n!*.txt\n"},
		"below excluded":   {".gitignore": "doc/\n!doc/deep/a.txt\n"},
		"stars only":       {".gitignore": "**\n!a\n"},
		"stars and folder": {".gitignore": "**/\n"},
		"a slash":          {".gitignore": "/\n!\n!/\n\n   \n"},
		"question":         {".gitignore": "?\nx?\nfoo?bar\nn?/f\n"},
		"classes":          {".gitignore": "n[0-9]\nn[!a-z1]\ns[]-]x\n[[]x]\n"},
		"class and slash":  {".gitignore": "s[!a]x\nfoo[+-9]bar\n/s[/]x\nfoo[^q]x/bar\n"},
		"classes by name":  {".gitignore": "n[[:alpha:]]/\nn[[:punct:]]/\nx[[:digit:]]\n[[:upper:]]*\nn[[:none:]]\n"},
		"class in class":   {".gitignore": "n[[:digit:]_]/f\nn[[:]\nn[a[:]/f\n"},
		"open class":       {".gitignore": "n[1\n[\n[!\nx[[:digit:]\nb.[\\\n"},
		"braces":           {".gitignore": "x{1}\nx{1,2}\n{a,b.log}\n"},
		"escapes":          {".gitignore": "\\#x\n\\!x\nback\\\\slash\nstar\\*\n\\a\n\\[x\\]\nx[\\1]\n"},
		"a comment":        {".gitignore": "# a\n#x\na # b\n"},
		"spaces":           {".gitignore": "sp ace   \ntail\\ \n\t\na \\\n"},
		"spaces kept":      {".gitignore": "tail \nsp\\ ace \\ \n"},
		"broken at end":    {".gitignore": "a\\\nb.log\\"},
		"CRLF and mark":    {".gitignore": "\uFEFFa\r\nlog/\r\n\r\nb.log\r"},
		"NUL":              {".gitignore": "a\x00b\nb.log\n"},
		"nested":           {".gitignore": "*.txt\n", "doc/.gitignore": "!a.txt\n/deep/er\n", "doc/deep/.gitignore": "a.txt\n"},
		"nested anchors":   {"src/.gitignore": "/build\nvendor/lib\n/foo\n", "foo/.gitignore": "bar\n!/x/bar\n"},
		"hidden":           {".gitignore": ".*\n!.gitignore\n"},
		"case":             {".gitignore": "*.LOG\nDOC\n"},
		"letters":          {".gitignore": "caf*.txt\ncafé.*\n[é]x\n"},
		"a link":           {".gitignore": "a\n"},
		"a file before /":  {".gitignore": "a/b\na/\nx1/**\n"},
	}
	for name, files := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := repository(t)
			for _, path := range tree {
				put(t, dir, map[string]string{path: ""})
			}
			put(t, dir, files)
			if name == "a link" {
				if err := os.Symlink("../.gitignore", filepath.Join(dir, "doc/.gitignore")); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink("log", filepath.Join(dir, "linked")); err != nil {
					t.Fatal(err)
				}
			}
			want := byGit(t, dir)
			if got := ignored(t, dir, "."); !slices.Equal(got, want) {
				t.Errorf("%q:\n got %q\nwant %q", files, got, want)
			}
		})
	}
}

// TestAsGit_Any compares many folders with lines of any kind at once.
func TestAsGit_Any(t *testing.T) {
	t.Parallel()
	piece := rapid.SampledFrom([]string{
		"a", "b", "ab", "/", "/", "*", "**", "**/", "/**", "?", "!", "[ab]", "[!a]", "[a-c]", "[[:alpha:]]", "\\", " ", "#", "\\a", "\\ ", "]", "{a,b}", "-",
	})
	lines := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(piece, 1, 5).Draw(t, "line"), "")
	}), 1, 4)
	names := []string{"a", "b", "ab", "abc", "c"}
	for seed := range 2 {
		dir := repository(t)
		said := map[string]string{}
		for i := range 40 {
			folder := fmt.Sprintf("case%02d/", i)
			said[folder] = strings.Join(lines.Example(seed*1000+i), "\n")
			put(t, dir, map[string]string{folder + ".gitignore": said[folder]})
			for _, x := range names[:2] {
				for _, y := range names {
					put(t, dir, map[string]string{folder + x + "/" + y + "/" + names[i%5]: "", folder + "ab" + y: ""})
				}
			}
		}
		want, got := map[string]bool{}, map[string]bool{}
		for _, name := range byGit(t, dir) {
			want[name] = true
		}
		for _, name := range ignored(t, dir, ".") {
			got[name] = true
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if !got[name] {
				t.Errorf("%q: git ignores %s", said[name[:7]], name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(got)) {
			if !want[name] {
				t.Errorf("%q: git does not ignore %s", said[name[:7]], name)
			}
		}
	}
}

// TestFor: what is above counts, in the workspace and from the root of the repository on, but
// not if it ignores the workspace itself.
func TestFor(t *testing.T) {
	t.Parallel()
	dir := repository(t)
	put(t, dir, map[string]string{
		".gitignore": "*.log\n/scratch/\n", "pkg/.gitignore": "out/\n", ".ignore": "!keep.log\nsecret\n",
		"pkg/one/x.log": "", "pkg/one/keep.log": "", "pkg/one/out/x": "", "pkg/one/secret/x": "", "pkg/one/x.go": "",
		"scratch/.gitignore": "*.tmp\n", "scratch/x.log": "", "scratch/x.tmp": "",
	})
	for _, test := range []struct {
		workspace, real string
		want            []string
	}{
		{".", "pkg/one", []string{"pkg/one/out", "pkg/one/secret", "pkg/one/x.log"}},
		{"pkg", "one", []string{"one/out", "one/secret", "one/x.log"}},
		{"pkg/one", ".", []string{"out", "secret", "x.log"}},
		{"pkg/one", "out", nil}, // named: its files are no folder out/
		{"scratch", ".", []string{"x.tmp"}},
	} {
		if got := ignored(t, filepath.Join(dir, test.workspace), test.real); !slices.Equal(got, test.want) {
			t.Errorf("%s, %s: %q, want %q", test.workspace, test.real, got, test.want)
		}
	}
}

// TestHostile: files that are long, or no files, cost little and hide nothing else.
func TestHostile(t *testing.T) {
	t.Parallel()
	dir := repository(t)
	stars := strings.Repeat("*a", 2000) + "\n" + strings.Repeat("**/a/", 500) + "\n" + strings.Repeat("[", 5000) + "\n"
	put(t, dir, map[string]string{
		"big/.gitignore": strings.Repeat("x", 1<<20) + "\n*\n", "big/f": "",
		"many/.gitignore": strings.Repeat("!f\n", 10_000) + "f\n", "many/f": "",
		"stars/.gitignore": stars, "stars/" + strings.Repeat("a", 200) + "b": "",
		"folder/.gitignore/x": "", "folder/f": "", "binary/.gitignore": "\x00\xff\xfe[\xff-\x00]\n\xff*\n", "binary/f": "",
		"few/.gitignore": "f\n", "few/f": "",
	})
	began := time.Now()
	if got := ignored(t, dir, "."); !slices.Equal(got, []string{"few/f"}) {
		t.Errorf("%q", got)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	for i := range 40 {
		put(t, dir, map[string]string{fmt.Sprintf("a%03d/.gitignore", i): strings.Repeat("#", 1<<20-10) + "\nf\n", fmt.Sprintf("a%03d/f", i): ""})
	}
	if got := ignored(t, dir, "."); len(got) < 8 || len(got) > 20 {
		t.Errorf("%d files of 40 MB count", len(got))
	}
}
