package offline

import (
	"cmp"
	"fmt"
	"strings"
)

// describe tells a listing, folders first.
func describe(l listing, folder string) string {
	where := visible(cmp.Or(folder, "this folder"))
	var folders, files []string
	for _, e := range l.Entries {
		if e.IsDir {
			folders = append(folders, e.Name+e.slash())
		} else {
			files = append(files, fmt.Sprintf("%s (%s)", e.Name, e.about()))
		}
	}
	if len(folders)+len(files) == 0 {
		return fmt.Sprintf("There is nothing in %s.", where)
	}
	var parts []string
	if len(folders) > 0 {
		parts = append(parts, plural(len(folders), "folder", "folders"))
	}
	if len(files) > 0 {
		parts = append(parts, plural(len(files), "file", "files"))
	}
	verb := "are"
	if strings.HasPrefix(parts[0], "1 ") {
		verb = "is"
	}
	text := fmt.Sprintf("In %s there %s %s", where, verb, strings.Join(parts, " and "))
	if l.Truncated {
		text += " (and more: the list was cut)"
	}
	return text + ":\n" + bullets(append(folders, files...))
}

// slash ends the name of a folder, and says so if it is a link to one.
func (e entry) slash() string {
	if e.IsSymlink {
		return "/ (a link to a folder)"
	}
	return "/"
}

// about tells what an entry is, as far as a listing knows.
func (e entry) about() string {
	switch {
	case !e.IsSymlink:
		return bytes(e.Size)
	case e.Size > 0:
		return "a link to a file of " + bytes(e.Size)
	}
	return "a link: to nothing, to an empty or special file, or out of the workspace"
}

// bytes writes a size in decimal units, with one digit after the point.
func bytes(n int64) string {
	if n < 10_000 {
		return plural(int(n), "byte", "bytes")
	}
	size, unit := float64(n), ""
	for _, unit = range []string{"kB", "MB", "GB", "TB", "PB"} {
		if size /= 1000; size < 999.95 {
			break
		}
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", size), ".0") + " " + unit
}

// exactly is the size with all its digits, and in short if it is long.
func exactly(n int64) string {
	text := plural(int(n), "byte", "bytes")
	if short := bytes(n); short != text {
		text += " (" + short + ")"
	}
	return text
}
