package files

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/tool/internal/diff"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	nameWriteFile = "write_file"
	nameEditFile  = "edit_file"
)

const writeFileParameters = `{
	"type": "object",
	"properties": {
		"path": {"type": "string", "minLength": 1, "maxLength": 4096},
		"content": {"type": "string"}
	},
	"required": ["path", "content"],
	"additionalProperties": false
}`

const editFileParameters = `{
	"type": "object",
	"properties": {
		"path": {"type": "string", "minLength": 1, "maxLength": 4096},
		"old_text": {"type": "string", "minLength": 1},
		"new_text": {"type": "string"}
	},
	"required": ["path", "old_text", "new_text"],
	"additionalProperties": false
}`

func newWriteFile(s *settings) *writer {
	return &writer{
		about: about{set: s, spec: spec(nameWriteFile, "Write a whole text file of the workspace, and folders that are missing. "+
			"To change a part, use edit_file.", writeFileParameters, toolcrib.EffectIdempotentWrite)},
		decode: decodeWriteFile,
	}
}

func decodeWriteFile(arguments json.RawMessage) (change, error) {
	var in struct {
		Path    string `json:"path"`
		Content string `json:"content"`
	}
	if err := wire.Decode(arguments, &in); err != nil {
		return change{}, err
	}
	return change{
		path: in.Path, texts: []string{in.Content},
		content: func([]byte, string) ([]byte, error) { return []byte(in.Content), nil },
		message: func(shown string, after int) string {
			return fmt.Sprintf("Successfully wrote %d bytes to %s", after, shown)
		},
	}, nil
}

func newEditFile(s *settings) *writer {
	return &writer{
		about: about{set: s, spec: spec(nameEditFile, "Replace old_text, which must occur exactly once in the file, with new_text.",
			editFileParameters, toolcrib.EffectIdempotentWrite)},
		decode: decodeEditFile,
	}
}

func decodeEditFile(arguments json.RawMessage) (change, error) {
	var in struct {
		Path    string `json:"path"`
		OldText string `json:"old_text"`
		NewText string `json:"new_text"`
	}
	if err := wire.Decode(arguments, &in); err != nil {
		return change{}, err
	}
	c := change{
		path: in.Path, edits: true, texts: []string{in.OldText, in.NewText},
		content: func(before []byte, shown string) ([]byte, error) {
			return edit(before, []byte(in.OldText), []byte(in.NewText), shown)
		},
		message: func(shown string, _ int) string { return "Successfully edited " + shown },
	}
	switch in.OldText {
	case "":
		c.useless = toolcrib.Failf(toolcrib.InvalidArguments, "old_text is empty; to write a whole file, use write_file")
	case in.NewText:
		c.useless = toolcrib.Failf(toolcrib.InvalidArguments, "old_text and new_text are the same")
	}
	return c, nil
}

// edit replaces old, which must occur exactly once, by text. In a file with CR LF line endings, old and
// text may have LF; the result keeps the line endings of the file.
func edit(before, old, text []byte, shown string) ([]byte, error) {
	count := occurrences(before, old)
	if count == 0 && bytes.Contains(before, []byte("\r\n")) && !bytes.Contains(old, []byte("\r")) {
		old = bytes.ReplaceAll(old, []byte("\n"), []byte("\r\n"))
		text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
		count = occurrences(before, old)
	}
	if count != 1 {
		hint := "include more of the surrounding text"
		if count == 0 {
			hint = "read the file again and copy the text exactly" + alike(string(before), string(old))
		}
		return nil, toolcrib.Failf(toolcrib.InvalidArguments,
			"old_text occurs %d times in %s, it must occur exactly once; %s", count, shown, hint)
	}
	return bytes.Replace(before, old, text, 1), nil
}

// typed replaces typographic characters of word processors and web pages by those of a keyboard.
var typed = strings.NewReplacer("\u00a0", " ", "\u2007", " ", "\u2009", " ", "\u202f", " ", "\u3000", " ",
	"\u2018", "'", "\u2019", "'", "\u201a", "'", "\u201b", "'", "\u201c", `"`, "\u201d", `"`, "\u201e", `"`, "\u201f", `"`,
	"\u2010", "-", "\u2011", "-", "\u2012", "-", "\u2013", "-", "\u2014", "-", "\u2212", "-")

// alike lists the characters in which text differs from part, if it has part except for characters that look alike. It
// returns "" otherwise.
func alike(text, part string) string {
	before, _, found := strings.Cut(typed.Replace(text), typed.Replace(part))
	if !found {
		return ""
	}
	have, want := []rune(text)[utf8.RuneCountInString(before):], []rune(part) // Replace keeps the number of characters
	var other []string
	for i, r := range want {
		if say := fmt.Sprintf("%U where old_text has %U", have[i], r); have[i] != r && !slices.Contains(other, say) {
			other = append(other, say)
		}
	}
	return ": it has " + strings.Join(other, ", ")
}

// occurrences returns how often part occurs in text, and more than 1 if occurrences overlap: "aa" occurs
// in "aaa" twice, and it is ambiguous which one is meant.
func occurrences(text, part []byte) int {
	count := bytes.Count(text, part)
	if count == 1 && bytes.Index(text, part) != bytes.LastIndex(text, part) {
		return 2
	}
	return count
}

// change is the change of a file that a call makes.
type change struct {
	path    string
	texts   []string                                          // content, or old and new text
	content func(before []byte, shown string) ([]byte, error) // returns the new content
	edits   bool                                              // whether content uses before, so that the file must exist
	message func(shown string, after int) string
	useless error // why the change makes no sense, or nil
}

// writer implements write_file and edit_file, which differ in the change that decode returns.
type writer struct {
	about
	decode func(arguments json.RawMessage) (change, error)
}

// prepared is the record of a write in the journal, before it happens.
type prepared struct {
	Path         string `json:"path"`          // relative to the workspace, links resolved
	BeforeSHA256 string `json:"before_sha256"` // "" if there was no file
	AfterSHA256  string `json:"after_sha256"`
	BeforeBytes  int64  `json:"before_bytes"`
	AfterBytes   int64  `json:"after_bytes"`
}

type writeResult struct {
	Message string `json:"message"`
}

// write is the plan of one call: a change of the file at a place.
type write struct {
	set *settings
	change
	at   place
	idle bool // whether it changed nothing when it was planned

	prepared *preparedWrite // nil before Prepare
}

// preparedWrite is the file as Prepare found it, and its new content.
type preparedWrite struct {
	before version
	after  []byte
}

// Plan decodes the arguments, resolves the path, and finds out whether the call can change anything.
func (t *writer) Plan(ctx context.Context, call toolcrib.Call) (*toolcrib.Plan, error) {
	c, err := t.decode(call.Arguments)
	if err != nil {
		return nil, err
	}
	p, abs, err := t.resolve(call, c.path)
	if err != nil {
		return nil, err
	}
	call = call.WithoutArguments()
	w := &write{set: t.set, change: c, at: p}
	w.idle = w.noEffect(ctx, call)
	plan := t.plan(call, c.path, abs, true)
	plan.Content, plan.NoEffect = c.texts, w.idle
	plan.Files = func(ctx context.Context) ([]toolcrib.FileState, error) { return w.files(ctx, call) }
	plan.Preview = func(ctx context.Context) (toolcrib.Preview, error) { return w.preview(ctx, call) }
	plan.Prepare, plan.Reconcile, plan.Run = w.prepare, w.reconcile, w.do
	return plan, nil
}

// Call plans the call and runs the plan.
func (t *writer) Call(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	return toolcrib.RunPlan(ctx, t, call)
}

// noEffect reports whether the call would change nothing now: it fails, or the file has its content already. An
// empty write always counts as one, because what undoes a turn then removes the file.
func (t *write) noEffect(ctx context.Context, call toolcrib.Call) bool {
	same := false
	err := t.with(ctx, call, func(w *workspace, p place) error {
		if !t.edits && (p.info == nil || t.texts[0] == "") {
			return nil
		}
		dir, err := w.OpenFolder(path.Dir(p.real), nil)
		if err != nil {
			return err
		}
		defer dir.Close() //nolint:errcheck // only read
		if err := writable(dir, p); err != nil || !t.edits && p.info.Size() != int64(len(t.texts[0])) {
			return err
		}
		before, _, after, err := t.of(ctx, w, p)
		same = err == nil && before.hash == hashOf(after)
		return err
	})
	var failed *toolcrib.ToolError
	return same || errors.As(err, &failed) && ctx.Err() == nil
}

// with calls do with the file of the plan, if it may be written.
func (t *write) with(ctx context.Context, call toolcrib.Call, do func(*workspace, place) error) error {
	if t.useless != nil {
		return t.useless
	}
	return t.set.at(ctx, call, t.at, func(w *workspace, p place) error {
		if strings.HasSuffix(t.path, "/") {
			return toolcrib.Failf(toolcrib.InvalidPath, "the path ends in a slash, so it names a folder: %s", t.path)
		}
		if err := w.protected(p); err != nil {
			return err
		}
		if p.info != nil {
			if err := regular(p.info, p.shown); err != nil {
				return err
			}
		}
		if err := w.saved(ctx, call, p); err != nil {
			return err
		}
		return do(w, p)
	})
}

// of returns the current state of the file and its new content. For edits it also returns the old
// content.
func (c change) of(ctx context.Context, w *workspace, p place) (before version, old, after []byte, err error) {
	if !c.edits {
		if before, err = w.version(ctx, p); err != nil {
			return before, nil, nil, err
		}
		after, err = c.content(nil, p.shown)
		return before, nil, after, err
	}
	f, info, err := w.openRead(p)
	if err != nil {
		return before, nil, nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	text, encoding, err := readWhole(ctx, f, info, p.shown)
	if err == nil && encoding != "" {
		err = toolcrib.Failf(toolcrib.ExecutionFailed, "%s is text in %s, and edit_file changes UTF-8 only; nothing was written. "+
			"write_file replaces the whole file, in UTF-8", p.shown, encoding)
	}
	if err != nil {
		return before, nil, nil, err
	}
	old = []byte(text)
	before = version{hash: hashOf(old), bytes: int64(len(old)), info: info}
	after, err = c.content(old, p.shown)
	return before, old, after, err
}

// do writes the file, as a whole or not at all.
func (t *write) do(ctx context.Context, call toolcrib.Call) (toolcrib.Output, error) {
	var result writeResult
	err := t.with(ctx, call, func(w *workspace, p place) error {
		unlock, err := t.set.lock(ctx, w.Abs(p.real))
		if err != nil {
			return err
		}
		defer unlock()
		before, after, err := t.now(ctx, w, p)
		if t.prepared != nil && err == nil && before.hash != t.prepared.before.hash {
			return toolcrib.Failf(toolcrib.ExecutionFailed, "%s was changed by someone else just now; nothing was written, read it again", p.shown)
		}
		if err := t.set.approved(call, w.Abs(p.real), p.shown, before, err); err != nil {
			return err
		}
		hash := hashOf(after)
		result.Message = t.done(p.shown, before.hash, hash, len(after))
		switch {
		case before.hash == hash:
			return nil
		case t.idle && t.prepared == nil: // it was judged as one that only reads
			return toolcrib.Failf(toolcrib.ExecutionFailed, "%s was changed just now; nothing was written, call again", p.shown)
		}
		if err := w.replace(ctx, p, before, after); err != nil {
			return err
		}
		t.set.wrote(call.Run, w.Abs(p.real), before.state(), "sha256:"+hash)
		return nil
	})
	if err != nil {
		return toolcrib.Output{}, err
	}
	return wire.Output(result)
}

// done returns the message of a call that succeeded. before and after are hashes of the content.
func (t *write) done(shown, before, after string, size int) string {
	if before == after {
		return fmt.Sprintf("Nothing was written: %s has this content already", shown)
	}
	return t.message(shown, size)
}

// now returns the current state of the file and its new content, which prepare has made already if it was
// called.
func (t *write) now(ctx context.Context, w *workspace, p place) (before version, after []byte, err error) {
	if t.prepared == nil {
		before, _, after, err = t.of(ctx, w, p)
		return before, after, err
	}
	before, err = w.version(ctx, p)
	return before, t.prepared.after, err
}

// prepare returns hashes of the file before and after the call, by which reconcile finds out whether
// the call happened. It already fails if the call cannot succeed.
func (t *write) prepare(ctx context.Context, call toolcrib.Call) (json.RawMessage, error) {
	var record prepared
	err := t.with(ctx, call, func(w *workspace, p place) error {
		before, _, after, err := t.of(ctx, w, p)
		if err := t.set.approved(call, w.Abs(p.real), p.shown, before, err); err != nil {
			return err
		}
		record = prepared{
			Path: p.real, BeforeSHA256: before.hash, BeforeBytes: before.bytes,
			AfterSHA256: hashOf(after), AfterBytes: int64(len(after)),
		}
		t.prepared = &preparedWrite{before, after}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return wire.Marshal(record)
}

// reconcile compares the file with the hashes of prepare: if it is as after the call, the call
// happened; if it is as before, it did not; otherwise this remains in doubt.
func (t *write) reconcile(ctx context.Context, call toolcrib.Call, data json.RawMessage) (toolcrib.Reconciled, error) {
	var record prepared
	if err := json.Unmarshal(data, &record); err != nil || record.AfterSHA256 == "" || record.Path != t.at.real {
		return toolcrib.Reconciled{}, nil // in doubt without a record, or if the path leads elsewhere now
	}
	var done toolcrib.Reconciled
	call.Buffers = nil // what happened does not depend on the editor
	err := t.with(ctx, call, func(w *workspace, p place) error {
		if dir, err := w.OpenFolder(path.Dir(p.real), nil); err == nil {
			_ = discard(dir, w.temporary) // best effort: the killed driver may have left it
			_ = dir.Close()
		}
		now, err := w.version(ctx, p)
		if err != nil {
			return err
		}
		switch now.hash {
		case record.AfterSHA256:
			done.State = toolcrib.Happened
			done.Output, err = wire.Output(writeResult{
				Message: t.done(p.shown, record.BeforeSHA256, record.AfterSHA256, int(record.AfterBytes)),
			})
			return err
		case record.BeforeSHA256:
			done.State = toolcrib.NotHappened
		}
		return nil
	})
	if made := (*toolcrib.ToolError)(nil); errors.As(err, &made) {
		return toolcrib.Reconciled{}, nil // in doubt, since it cannot be read now
	}
	return done, err
}

// maxDiffBytes is the maximum size of an existing file that is shown in a diff.
const maxDiffBytes = 1 << 20

// preview returns the complete change as a unified diff; bounding it is left to the display. If the
// call cannot succeed, preview returns its error.
func (t *write) preview(ctx context.Context, call toolcrib.Call) (toolcrib.Preview, error) {
	var preview toolcrib.Preview
	err := t.with(ctx, call, func(w *workspace, p place) error {
		before, old, after, err := t.of(ctx, w, p)
		if err != nil {
			return err
		}
		if !t.edits && before.hash != "" && before.bytes <= maxDiffBytes {
			if old, err = w.content(ctx, p); err != nil {
				return err
			}
		}
		preview, err = compare(p.shown, before, old, after)
		return err
	})
	return preview, err
}

func (w *workspace) content(ctx context.Context, p place) ([]byte, error) {
	f, info, err := w.openRead(p)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return readAll(ctx, f, info.Size(), 2*maxDiffBytes)
}

// compare describes the change of a file, by a diff if possible.
func compare(shown string, before version, old, after []byte) (toolcrib.Preview, error) {
	exists := before.hash != ""
	switch {
	case exists && before.hash == hashOf(after):
		return text("%s stays as it is: it has this content already (%d bytes)", shown, len(after)), nil
	case !exists && len(after) == 0:
		return text("new empty file %s", shown), nil
	case before.bytes > maxDiffBytes:
		return text("%s: %d bytes are replaced by %d bytes (too large for a diff)", shown, before.bytes, len(after)), nil
	case !isText(old, false):
		what := "a binary file"
		if _, encoding, ok := decoded(old); ok {
			what = "a text file in " + encoding
		}
		return text("%s: %s of %d bytes is replaced by %d bytes of text", shown, what, before.bytes, len(after)), nil
	}
	return diff.Preview(shown, string(old), string(after), !exists, false)
}

func text(format string, args ...any) toolcrib.Preview {
	return toolcrib.Preview{Kind: "text", Text: fmt.Sprintf(format, args...)}
}
