package files_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/files"
)

// kit has the tools by name and a workspace.
type kit struct {
	t     *testing.T
	dir   string
	tools map[string]toolcrib.Tool
}

func newKit(t *testing.T, options files.Options) *kit {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	k := &kit{t: t, dir: dir, tools: map[string]toolcrib.Tool{}}
	for _, tool := range files.New(options) {
		k.tools[tool.Spec().Name] = tool
	}
	return k
}

func (k *kit) path(name string) string { return filepath.Join(k.dir, name) }

func (k *kit) put(name, content string) {
	k.t.Helper()
	if err := os.MkdirAll(filepath.Dir(k.path(name)), 0o755); err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(k.path(name), []byte(content), 0o644); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kit) get(name string) string {
	k.t.Helper()
	data, err := os.ReadFile(k.path(name))
	if err != nil {
		k.t.Fatal(err)
	}
	return string(data)
}

func (k *kit) link(target, name string) {
	k.t.Helper()
	if err := os.Symlink(target, k.path(name)); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kit) made(tool string, arguments any) toolcrib.Call {
	k.t.Helper()
	data, err := json.Marshal(arguments)
	if err != nil {
		k.t.Fatal(err)
	}
	return toolcrib.Call{ID: "call_1", Name: tool, Arguments: data, Run: "run_1", Workspace: k.dir}
}

type args map[string]any

func (k *kit) call(tool string, arguments any) (string, error) {
	k.t.Helper()
	out, err := k.tools[tool].Call(context.Background(), k.made(tool, arguments))
	return string(out.JSON), err
}

func (k *kit) want(tool string, arguments any, want string) {
	k.t.Helper()
	got, err := k.call(tool, arguments)
	if err != nil {
		k.t.Fatalf("%s: %v", tool, err)
	}
	if got != want {
		k.t.Fatalf("%s:\n got %s\nwant %s", tool, got, want)
	}
}

// fails checks the text that a model would read, and that no path outside the
// workspace is in it.
func (k *kit) fails(tool string, arguments any, want string) {
	k.t.Helper()
	got, err := k.call(tool, arguments)
	k.failed(got, err, want)
}

func (k *kit) failed(got string, err error, want string) {
	k.t.Helper()
	made := (*toolcrib.ToolError)(nil)
	if !errors.As(err, &made) {
		k.t.Fatalf("got %s, error %v; want a ToolError %q", got, err, want)
	}
	if !strings.HasPrefix(made.Error(), want) {
		k.t.Fatalf("error %q, want %q", made.Error(), want)
	}
	if strings.Contains(made.Error(), k.dir) {
		k.t.Fatalf("error %q tells where the workspace is", made.Error())
	}
}

// clean checks that no temporary file was left behind.
func (k *kit) clean() {
	k.t.Helper()
	err := filepath.WalkDir(k.dir, func(path string, _ os.DirEntry, err error) error {
		if strings.Contains(filepath.Base(path), ".tmp") {
			k.t.Errorf("left behind: %s", path)
		}
		return err
	})
	if err != nil {
		k.t.Fatal(err)
	}
}

// What begins like an image and cannot be decoded is read like any other file: as text, or as an error that says what it is.
func TestC9_ReadFileOfABrokenImage(t *testing.T) {
	k := newKit(t, files.Options{})
	read := func(name, content string) (toolcrib.Output, error) {
		k.put(name, content)
		call := k.made("read_file", args{"path": name})
		call.Images = true
		return k.tools["read_file"].Call(t.Context(), call)
	}
	out, err := read("a.png", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00")
	k.failed(string(out.JSON), err, "execution failed: a.png is a binary file (image/png, 17 bytes)")
	if out, err = read("formats.txt", "GIF89a begins a GIF.\n"); err != nil || out.Files != nil ||
		string(out.JSON) != `{"content":"GIF89a begins a GIF.\n"}` {
		t.Errorf("%s, %d files, %v", out.JSON, len(out.Files), err)
	}
}

func TestC9_ReadFile(t *testing.T) {
	k := newKit(t, files.Options{})
	k.put("a.txt", "one\ntwo <b> & é\nthree")
	k.put("empty", "")
	k.put("one.txt", "one\n")
	k.fails("read_file", args{"path": "one.txt", "offset": 2}, "invalid arguments: offset 2 is beyond the end: one.txt has 1 line")
	k.want("read_file", args{"path": "a.txt"}, `{"content":"one\ntwo <b> & é\nthree"}`)
	k.want("read_file", args{"path": k.path("a.txt")}, `{"content":"one\ntwo <b> & é\nthree"}`)
	k.want("read_file", args{"path": "a.txt", "offset": 2}, `{"content":"two <b> & é\nthree"}`)
	k.want("read_file", args{"path": "a.txt", "limit": 1}, `{"content":"one\n","next_offset":2}`)
	k.want("read_file", args{"path": "a.txt", "offset": 2, "limit": 1}, `{"content":"two <b> & é\n","next_offset":3}`)
	k.want("read_file", args{"path": "a.txt", "offset": 3, "limit": 9}, `{"content":"three"}`)
	k.want("read_file", args{"path": "empty"}, `{"content":""}`)
	k.want("read_file", args{"path": "empty", "offset": 1}, `{"content":""}`)
	k.fails("read_file", args{"path": "a.txt", "offset": 4}, "invalid arguments: offset 4 is beyond the end: a.txt has 3 lines")
	k.fails("read_file", args{"path": "a.txt", "offset": 9}, "invalid arguments: offset 9 is beyond the end: a.txt has 3 lines")
}

func TestC15_Errors(t *testing.T) {
	k := newKit(t, files.Options{})
	k.put("a.txt", "x")
	k.put("d/b", "x")
	k.fails("read_file", args{"path": "gone/b.txt"}, "not found: gone/b.txt")
	k.fails("list_directory", args{"path": "gone"}, "not found: gone")
	k.fails("search_files", args{"path": "gone", "pattern": "x"}, "not found: gone")
	k.fails("edit_file", args{"path": "gone", "old_text": "a", "new_text": "b"}, "not found: gone")
	k.fails("read_file", args{"path": ""}, "invalid path: the path is empty")
	k.fails("read_file", args{}, "invalid path: the path is empty")
	k.fails("read_file", args{"path": "d"}, "invalid path: d is a folder")
	k.fails("write_file", args{"path": "d", "content": ""}, "invalid path: d is a folder")
	k.fails("write_file", args{"path": "new/", "content": ""}, "invalid path: the path ends in a slash")
	k.fails("read_file", args{"path": "a.txt/b"}, "invalid path: a part of the path is not a folder: a.txt/b")
	k.fails("write_file", args{"path": "a.txt/b", "content": ""}, "invalid path: a part of the path is not a folder: a.txt/b")
	k.fails("list_directory", args{"path": "a.txt"}, "invalid path: a.txt is not a folder")
	k.fails("read_file", args{"path": strings.Repeat("n", 300)}, "invalid path: a name in the path is too long")
	k.fails("read_file", args{"path": strings.Repeat("n/", 3000)}, "invalid path: the path is longer than")
	k.fails("read_file", args{"path": 7}, "invalid arguments: ")
	for name, tool := range k.tools {
		call := k.made(name, args{"path": "a.txt", "content": "", "old_text": "x", "new_text": "y", "pattern": "x"})
		call.Workspace = ""
		_, err := tool.Call(context.Background(), call)
		k.failed(name, err, "permission denied: ")
		call.Workspace = "relative"
		_, err = tool.Call(context.Background(), call)
		k.failed(name, err, "permission denied: ")
	}
}

// Latin-1 and UTF-16 are decoded, and the result says so; what only may be text stays binary.
func TestC9_ReadFileEncodings(t *testing.T) {
	k := newKit(t, files.Options{})
	for name, c := range map[string]struct{ data, whole, second string }{
		"latin": {"caf\xe9\nau lait\n", `{"content":"café\nau lait\n","encoding":"ISO-8859-1"}`, `{"content":"au lait\n"}`},
		"windows": {
			"\x93quoted\x94\n\x80 5\n", `{"content":"“quoted”\n€ 5\n","encoding":"windows-1252"}`,
			`{"content":"€ 5\n","encoding":"windows-1252"}`,
		},
		"late": {
			strings.Repeat("a", 9000) + "\xe9\nb", `{"content":"` + strings.Repeat("a", 9000) + `é\nb","encoding":"ISO-8859-1"}`,
			`{"content":"b"}`,
		},
		"little": {"\xff\xfea\x00\n\x00\xe9\x00\n\x00", `{"content":"a\né\n","encoding":"UTF-16"}`, `{"content":"é\n","encoding":"UTF-16"}`},
		"big":    {"\xfe\xff\x00a\x00\n\x20\xac", `{"content":"a\n€","encoding":"UTF-16"}`, `{"content":"€","encoding":"UTF-16"}`},
		"no mark": {
			"o\x00n\x00e\x00 \x00\xe9\x00\n\x00b\x00", `{"content":"one é\nb","encoding":"UTF-16LE"}`,
			`{"content":"b","encoding":"UTF-16LE"}`,
		},
		"no mark, big": {
			"\x00o\x00n\x00e\x20\xac\x00\n\x00b", `{"content":"one€\nb","encoding":"UTF-16BE"}`,
			`{"content":"b","encoding":"UTF-16BE"}`,
		},
		"utf8": {"é\nb", `{"content":"é\nb"}`, `{"content":"b"}`},
	} {
		k.put(name, c.data)
		k.want("read_file", args{"path": name}, c.whole)
		k.want("read_file", args{"path": name, "offset": 2}, c.second)
	}
	for name, data := range map[string]string{
		"koi8":    strings.Repeat("\xd0\xd2\xc9\xd7\xc5\xd4 ", 20),
		"control": "caf\xe9\x01", "hole": "\x81 caf\xe9", "utf32": "\xff\xfe\x00\x00a\x00\x00\x00", "utf16nul": "\xff\xfea\x00\x00\x00",
		"samples": "\x01\x00\x02\x00\x03\x00\x02\x00\x01\x00", "words": "a\x00\x00\x00b\x00\x00\x00c\x00\x00\x00",
		"gzip": "\x1f\x8b\x08", "late control": strings.Repeat("a", 9000) + "\xe9\x02",
	} {
		k.put(name, data)
		k.fails("read_file", args{"path": name}, "execution failed: "+name+" is a binary file")
		k.fails("read_file", args{"path": name, "limit": 1}, "execution failed: "+name+" is a binary file")
	}
}

func TestC9_ReadFileLimits(t *testing.T) {
	k := newKit(t, files.Options{})
	k.put("bin", "ab\x00cd")
	k.put("late", strings.Repeat("a", 9000)+"\xff\x00")
	k.put("split", strings.Repeat("a", 8191)+"é")
	k.fails("read_file", args{"path": "bin"}, "execution failed: bin is a binary file (application/octet-stream, 5 bytes)")
	k.fails("read_file", args{"path": "late"}, "execution failed: late is a binary file")
	k.fails("read_file", args{"path": "late", "offset": 1}, "execution failed: late is a binary file")
	if got, err := k.call("read_file", args{"path": "split"}); err != nil || !strings.HasSuffix(got, `aé"}`) {
		t.Fatalf("a character across the first 8 KiB: %.20s %v", got, err)
	}
	// A huge sparse file: text at the start, read by lines without the rest.
	k.put("huge", "first\nsecond\n"+strings.Repeat("x", 10000)+"\n")
	if err := os.Truncate(k.path("huge"), 10<<30); err != nil {
		t.Fatal(err)
	}
	k.fails("read_file", args{"path": "huge"}, "execution failed: huge has 10737418240 bytes")
	k.want("read_file", args{"path": "huge", "offset": 2, "limit": 1}, `{"content":"second\n","next_offset":3}`)
	k.fails("read_file", args{"path": "huge", "offset": 4, "limit": 1}, "execution failed: line 4 of huge is longer than")
}

func TestC9_ListDirectory(t *testing.T) {
	k := newKit(t, files.Options{Hidden: func(abs string) bool { return filepath.Base(abs) == "keys" }})
	k.want("list_directory", args{}, `{"entries":[]}`)
	k.put("b.txt", "12345")
	k.put("a/inner", "x")
	k.put("Z", "")
	k.put("keys/k", "x")
	k.link("b.txt", "l-file")
	k.link("a", "l-dir")
	k.link("/etc/passwd", "l-out")
	k.link("keys/k", "l-keys")
	k.want("list_directory", args{"path": "."}, `{"entries":[`+
		`{"name":"Z","is_dir":false,"size":0},{"name":"a","is_dir":true,"size":0},{"name":"b.txt","is_dir":false,"size":5},`+
		`{"name":"l-dir","is_dir":true,"size":0,"is_symlink":true},{"name":"l-file","is_dir":false,"size":5,"is_symlink":true},`+
		`{"name":"l-keys","is_dir":false,"size":1,"is_symlink":true},`+
		`{"name":"l-out","is_dir":false,"size":0,"is_symlink":true}]}`)
	k.want("list_directory", args{"path": "l-dir"}, `{"entries":[{"name":"inner","is_dir":false,"size":1}]}`)
	k.fails("list_directory", args{"path": "keys"}, "permission denied: protected path: keys")
	k.fails("list_directory", args{"path": "l-out"}, "invalid path: path escapes workspace: l-out")
}

func TestC9_WriteFile(t *testing.T) {
	k := newKit(t, files.Options{})
	k.want("write_file", args{"path": "x/y/z.txt", "content": "<é>"}, `{"message":"Successfully wrote 4 bytes to x/y/z.txt"}`)
	if k.get("x/y/z.txt") != "<é>" {
		t.Fatal("not written")
	}
	if err := os.Chmod(k.path("x/y/z.txt"), 0o750); err != nil {
		t.Fatal(err)
	}
	k.want("write_file", args{"path": "x/y/z.txt", "content": ""}, `{"message":"Successfully wrote 0 bytes to x/y/z.txt"}`)
	info, err := os.Stat(k.path("x/y/z.txt"))
	if err != nil || info.Mode().Perm() != 0o750 || info.Size() != 0 {
		t.Fatalf("mode and size %v %v", info, err)
	}
	k.want("write_file", args{"path": k.path("n.txt"), "content": "1"}, `{"message":"Successfully wrote 1 bytes to n.txt"}`)
	k.link("x", "into")
	k.want("write_file", args{"path": "into/new/f", "content": "1"}, `{"message":"Successfully wrote 1 bytes to into/new/f"}`)
	k.link("n.txt", "alias")
	k.want("write_file", args{"path": "alias", "content": "22"}, `{"message":"Successfully wrote 2 bytes to alias"}`)
	if k.get("n.txt") != "22" || k.get("x/new/f") != "1" {
		t.Fatal("links inside the workspace are written through")
	}
	if info, err := os.Lstat(k.path("alias")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Fatalf("the link itself stays: %v %v", info, err)
	}
	k.link("later/made.txt", "dangling")
	k.want("write_file", args{"path": "dangling", "content": "3"}, `{"message":"Successfully wrote 1 bytes to dangling"}`)
	if k.get("later/made.txt") != "3" {
		t.Fatal("a link to what does not exist yet is resolved")
	}
	k.clean()
}

func TestC9_EditFile(t *testing.T) {
	k := newKit(t, files.Options{})
	k.put("a", "one two three two")
	edit := func(old, text string) args { return args{"path": "a", "old_text": old, "new_text": text} }
	k.want("edit_file", edit("one", "1"), `{"message":"Successfully edited a"}`)
	k.fails("edit_file", edit("two", "2"), "invalid arguments: old_text occurs 2 times in a")
	k.fails("edit_file", edit("four", "4"), "invalid arguments: old_text occurs 0 times in a")
	k.fails("edit_file", edit("", "4"), "invalid arguments: old_text is empty")
	k.fails("edit_file", edit("x", "x"), "invalid arguments: old_text and new_text are the same")
	k.want("edit_file", edit(" three", ""), `{"message":"Successfully edited a"}`)
	if got := k.get("a"); got != "1 two two" {
		t.Fatalf("got %q", got)
	}
	k.put("a", "say \u201cyes\u201d,\u00a0please \u2013 don\u2019t")
	k.fails("edit_file", edit(`"yes", please`, "no"), "invalid arguments: old_text occurs 0 times in a, it must occur exactly once; "+
		"read the file again and copy the text exactly: it has U+201C where old_text has U+0022, U+201D where old_text has "+
		"U+0022, U+00A0 where old_text has U+0020")
	k.fails("edit_file", edit("- don't", "- do"), "invalid arguments: old_text occurs 0 times in a, it must occur exactly once; "+
		"read the file again and copy the text exactly: it has U+2013 where old_text has U+002D, U+2019 where old_text has U+0027")
	k.put("a", "xaaay")
	k.fails("edit_file", edit("aa", "b"), "invalid arguments: old_text occurs 2 times in a")
	k.put("a", "a\r\nb\r\nc\r\n")
	k.want("edit_file", edit("a\nb\n", "1\n2\n3\n"), `{"message":"Successfully edited a"}`)
	if got := k.get("a"); got != "1\r\n2\r\n3\r\nc\r\n" {
		t.Fatalf("line ends: %q", got)
	}
	k.put("a", "caf\xe9 x")
	k.fails("edit_file", edit("x", "y"), "execution failed: a is text in ISO-8859-1, and edit_file changes UTF-8 only; nothing was written")
	if got := k.get("a"); got != "caf\xe9 x" {
		t.Fatalf("a file that was not edited: %q", got)
	}
	k.put("a", "\x00")
	k.fails("edit_file", edit("x", "y"), "execution failed: a is a binary file")
	k.clean()
}
