package files

import (
	"bytes"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	nameWriteFile = "write_file"
	nameEditFile  = "edit_file"
)

const writeFileParameters = `{
	"type": "object",
	"properties": {
		"path": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "File to write, relative to the workspace. Missing folders are made."},
		"content": {"type": "string", "description": "The whole new content of the file."}
	},
	"required": ["path", "content"],
	"additionalProperties": false
}`

const editFileParameters = `{
	"type": "object",
	"properties": {
		"path": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "File to edit, relative to the workspace. It must exist."},
		"old_text": {"type": "string", "minLength": 1, "description": "Text to replace, exactly as it stands in the file; it must occur exactly once, so take in enough of what surrounds it."},
		"new_text": {"type": "string", "description": "Text to put in its place; empty to delete it."}
	},
	"required": ["path", "old_text", "new_text"],
	"additionalProperties": false
}`

type writeFile struct{ writer }

type writeFileInput struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

func newWriteFile(s *settings) *writeFile {
	return &writeFile{writer{
		pathPolicy: pathPolicy{set: s},
		spec: spec(nameWriteFile, "Write a text file of the workspace, new or in place of what is there. Missing folders are made. "+
			"To change a part of a file, use edit_file.", writeFileParameters, toolcrib.EffectIdempotentWrite),
		read: readWriteFile,
	}}
}

func readWriteFile(call toolcrib.Call) (change, error) {
	var in writeFileInput
	if err := wire.Decode(call, &in); err != nil {
		return change{}, err
	}
	return change{
		path:    in.Path,
		content: func([]byte, string) ([]byte, error) { return []byte(in.Content), nil },
		message: func(shown string, after int) string {
			return fmt.Sprintf("Successfully wrote %d bytes to %s", after, shown)
		},
	}, nil
}

type editFile struct{ writer }

type editFileInput struct {
	Path    string `json:"path"`
	OldText string `json:"old_text"`
	NewText string `json:"new_text"`
}

func newEditFile(s *settings) *editFile {
	return &editFile{writer{
		pathPolicy: pathPolicy{set: s},
		spec: spec(nameEditFile, "Replace one piece of text in a file of the workspace. old_text must occur exactly once.",
			editFileParameters, toolcrib.EffectIdempotentWrite),
		read: readEditFile,
	}}
}

func readEditFile(call toolcrib.Call) (change, error) {
	var in editFileInput
	if err := wire.Decode(call, &in); err != nil {
		return change{}, err
	}
	switch in.OldText {
	case "":
		return change{}, toolcrib.Failf(toolcrib.InvalidArguments, "old_text is empty; to write a whole file, use write_file")
	case in.NewText:
		return change{}, toolcrib.Failf(toolcrib.InvalidArguments, "old_text and new_text are the same")
	}
	return change{
		path: in.Path, edits: true,
		content: func(before []byte, shown string) ([]byte, error) {
			return edit(before, []byte(in.OldText), []byte(in.NewText), shown)
		},
		message: func(shown string, _ int) string { return "Successfully edited " + shown },
	}, nil
}

// edit replaces old, which must occur once. A file whose lines end in CR LF takes
// texts written with LF alone: the lines of the result end as the file's do.
func edit(before, old, text []byte, shown string) ([]byte, error) {
	count := occurrences(before, old)
	if count == 0 && bytes.Contains(before, []byte("\r\n")) && !bytes.Contains(old, []byte("\r")) {
		old = bytes.ReplaceAll(old, []byte("\n"), []byte("\r\n"))
		text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
		count = occurrences(before, old)
	}
	if count != 1 {
		hint := "take in more of what surrounds it"
		if count == 0 {
			hint = "read the file again and copy the text exactly"
		}
		return nil, toolcrib.Failf(toolcrib.InvalidArguments, "old_text occurs %d times in %s, it must occur exactly once; %s", count, shown, hint)
	}
	return bytes.Replace(before, old, text, 1), nil
}

// occurrences counts the places where part stands. Two that overlap are two as
// well: "aa" stands in "aaa" twice, and which is meant cannot be told.
func occurrences(text, part []byte) int {
	count := bytes.Count(text, part)
	if count == 1 && bytes.Index(text, part) != bytes.LastIndex(text, part) {
		return 2
	}
	return count
}
