package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
)

// canonicalEmpty is the arguments of a call without any (N13).
var canonicalEmpty = json.RawMessage("{}")

// attachmentSource is the name of attached files as a source of untrusted data.
const attachmentSource = "attachment"

// Limits on the files of one task.
const (
	maxTaskFiles    = 16
	maxHistoryFiles = 64
)

// checkFiles refuses files that no request can contain.
func checkFiles(task *Task) error {
	files := task.allFiles()
	if n := len(task.Files); n > maxTaskFiles {
		return usagef("%d files are attached, at most %d can be", n, maxTaskFiles)
	}
	if n := len(files) - len(task.Files); n > maxHistoryFiles {
		return usagef("%d files are attached to earlier messages, at most %d can be", n, maxHistoryFiles)
	}
	for i, f := range files {
		if why := unfit(f); why != "" {
			return usagef("attached file %d (%s) %s", i+1, f.Name, why)
		}
	}
	return nil
}

// allFiles returns the files of the prompt, followed by those of the history.
func (t *Task) allFiles() []toolcrib.OutputFile {
	all := slices.Clip(t.Files)
	for i := range t.History {
		all = append(all, t.HistoryFiles[i]...)
	}
	return all
}

// place adds files to their messages in the history, and returns those of the prompt.
func (t *Task) place(parts []toolcrib.Part) (prompt []toolcrib.Part) {
	prompt, rest := parts[:len(t.Files)], parts[len(t.Files):]
	if len(rest) == 0 {
		return prompt
	}
	t.History = slices.Clone(t.History)
	for i := range t.History {
		m, n := &t.History[i], len(t.HistoryFiles[i])
		m.Parts = append(slices.Clip(m.Parts), rest[:n]...)
		rest = rest[n:]
	}
	return prompt
}

// unfit returns the reason why a file cannot be part of a transcript, or "".
func unfit(f toolcrib.OutputFile) string {
	if _, _, err := mime.ParseMediaType(f.MediaType); err != nil || !strings.Contains(f.MediaType, "/") {
		return fmt.Sprintf("has no usable media type (%q)", f.MediaType)
	}
	switch {
	case len(f.Data) == 0:
		return "is empty"
	case len(f.Data) > toolcrib.MaxFileBytes:
		return fmt.Sprintf("has %d bytes, at most %d can be sent", len(f.Data), toolcrib.MaxFileBytes)
	}
	return ""
}

// keptFile is a file to be stored in the content store.
type keptFile struct {
	ref  string // unique in the run
	data []byte
}

// reference makes the part of a transcript that refers to a file. It names the run that stores the
// file, because later runs of the session have it in their transcripts too.
func (r *Runner) reference(run toolcrib.RunID, ref string, f toolcrib.OutputFile) (toolcrib.File, keptFile) {
	data := f.Data
	if isText(f.MediaType) {
		data = []byte(r.Mask.Clean(string(data)))
	}
	return toolcrib.File{
		Ref: string(run) + "/" + ref, MediaType: f.MediaType, Name: r.Mask.Clean(f.Name), Bytes: int64(len(data)),
	}, keptFile{ref: ref, data: data}
}

// isText reports whether a file of this media type is read as text.
func isText(media string) bool {
	kind, _, err := mime.ParseMediaType(media)
	if err != nil {
		return false
	}
	_, suffix, _ := strings.Cut(kind, "+")
	return strings.HasPrefix(kind, "text/") || suffix == "json" || suffix == "xml" ||
		slices.Contains([]string{"application/json", "application/xml", "application/yaml"}, kind)
}

// attach stores the files of a task in the content store, before the run begins.
func (r *Runner) attach(ctx context.Context, run toolcrib.RunID, files []toolcrib.OutputFile) ([]toolcrib.Part, error) {
	var parts []toolcrib.Part
	for i, f := range files {
		file, kept := r.reference(run, fmt.Sprintf("file_%d", i+1), f)
		if err := r.Contents.Put(ctx, run, kept.ref, kept.data); err != nil {
			return nil, fmt.Errorf("store the attached file %s: %w", f.Name, err)
		}
		parts = append(parts, toolcrib.Part{File: &file})
	}
	return parts, nil
}

// openFile returns the file that a reference refers to.
func (r *Runner) openFile(ctx context.Context, ref string) ([]byte, error) {
	run, key, ok := strings.Cut(ref, "/")
	if !ok {
		return nil, fmt.Errorf("file %q: %w", ref, toolcrib.ErrNotFound)
	}
	data, size, err := r.Contents.Range(ctx, toolcrib.RunID(run), key, 0, toolcrib.MaxFileBytes)
	if err == nil && size > toolcrib.MaxFileBytes {
		err = fmt.Errorf("file %s has %d bytes, at most %d can be sent", ref, size, toolcrib.MaxFileBytes)
	}
	return data, err
}

// files returns the files of an output that can be shown to a model. Its text mentions those left out.
func (x *execution) files(f *flight, ref string, out *toolcrib.Output) []toolcrib.File {
	var files []toolcrib.File
	left := ""
	for i, file := range out.Files {
		why := unfit(file)
		if why == "" && len(files) == toolcrib.MaxOutputFiles {
			why = fmt.Sprintf("is one too many: a result has at most %d", toolcrib.MaxOutputFiles)
		}
		if why != "" {
			left += fmt.Sprintf("\n[file %d of this result was left out: it %s]", i+1, why)
			continue
		}
		shown, kept := x.d.r.reference(x.d.s.Run, fmt.Sprintf("%s_%d", ref, i+1), file)
		files = append(files, shown)
		f.files = append(f.files, kept)
	}
	if left != "" && out.JSON == nil {
		out.Text += left
	}
	return files
}
