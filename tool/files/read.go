package files

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/text/transform"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/media"
	"github.com/toolcrib/toolcrib/tool/internal/wire"
)

const (
	nameReadFile = "read_file"

	maxReadBytes = 10 << 20 // bytes of a whole file, and of a range of lines
	sniffBytes   = 8 << 10  // bytes that distinguish text from binary
	chunkBytes   = 64 << 10 // bytes between two checks of the context
)

const readFileParameters = `{
	"type": "object",
	"properties": {
		"path": {"type": "string", "minLength": 1, "maxLength": 4096},
		"offset": {"type": "integer", "minimum": 1, "description": "first line, from 1"},
		"limit": {"type": "integer", "minimum": 1, "description": "lines"}
	},
	"required": ["path"],
	"additionalProperties": false
}`

type readFileInput struct {
	pathOf
	Offset int64 `json:"offset"`
	Limit  int64 `json:"limit"`
}

type readFileResult struct {
	Content    string `json:"content"`
	Encoding   string `json:"encoding,omitempty"`    // encoding of the file, from which content was decoded; "" for UTF-8
	NextOffset int64  `json:"next_offset,omitempty"` // line number, from 1
	Unsaved    bool   `json:"unsaved,omitempty"`     // the text is in the person's editor, and not in the file
}

// readFile returns a whole file of up to 10 MiB, or a range of lines of a file of any size. It does
// not cut the result to the limits of the call; the runtime does.
//
// If the person has the file open in an editor and has not saved it, the text of the editor is read. An image is
// returned as a file if the model takes images.
func readFile(
	ctx context.Context, call toolcrib.Call, w *workspace, p place, in readFileInput,
) (out toolcrib.Output, err error) {
	file, info, err := w.openRead(p)
	if err != nil {
		return out, err
	}
	defer file.Close() //nolint:errcheck // only read
	if out, err := asImage(ctx, call, file, info, p.shown); err != nil || out.Files != nil {
		return out, err
	}
	var result readFileResult
	var f io.Reader = file
	if text, unsaved, _ := w.unsaved(ctx, call, p); unsaved { // on error the file is read
		f, result.Unsaved = strings.NewReader(text), true
	}
	if in.Offset > 0 || in.Limit > 0 {
		unsaved := result.Unsaved
		result, err = readLines(ctx, f, info, p.shown, max(in.Offset, 1), in.Limit)
		result.Unsaved = unsaved
	} else {
		result.Content, result.Encoding, err = readWhole(ctx, f, info, p.shown)
	}
	if err != nil {
		return toolcrib.Output{}, err
	}
	return wire.Output(result)
}

// asImage returns an image as a file of the output, or no output for a file that is read as text. It leaves f at its
// beginning.
func asImage(
	ctx context.Context, call toolcrib.Call, f *os.File, info fs.FileInfo, shown string,
) (out toolcrib.Output, err error) {
	if !call.Images || info.Size() > toolcrib.MaxFileBytes {
		return out, nil
	}
	head := make([]byte, sniffBytes)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return out, err
	}
	kind := media.Type(head[:n])
	if !strings.HasPrefix(kind, "image/") || isText(head[:n], n == sniffBytes) { // a text may begin with GIF89a
		return out, nil
	}
	data, err := readAll(ctx, io.NewSectionReader(f, 0, info.Size()), info.Size(), toolcrib.MaxFileBytes)
	if err != nil {
		return out, err
	}
	if _, _, err := image.DecodeConfig(bytes.NewReader(data)); err != nil && kind != "image/webp" {
		return out, nil // no provider can read it either
	}
	out, err = wire.Output(readFileResult{Content: fmt.Sprintf("%s: %s, %d bytes", shown, kind, len(data))})
	out.Files = []toolcrib.OutputFile{{MediaType: kind, Name: path.Base(shown), Data: data}}
	return out, err
}

// openRead opens the regular file at p.
func (w *workspace) openRead(p place) (*os.File, fs.FileInfo, error) {
	if err := w.hidden(p); err != nil {
		return nil, nil, err
	}
	if p.info == nil {
		return nil, nil, toolcrib.Failf(toolcrib.NotFound, "%s", p.shown)
	}
	if err := regular(p.info, p.shown); err != nil {
		return nil, nil, err
	}
	dir, err := w.OpenFolder(path.Dir(p.real), nil)
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close() //nolint:errcheck // only read
	return w.openFile(dir, path.Base(p.real), p.shown)
}

// readWhole reads a text file of at most maxReadBytes. encoding is "" for UTF-8.
func readWhole(ctx context.Context, f io.Reader, info fs.FileInfo, shown string) (text, encoding string, err error) {
	head, _, err := sniff(f, info, shown)
	if err != nil {
		return "", "", err
	}
	if info.Size() > maxReadBytes {
		return "", "", tooLarge(info.Size(), shown)
	}
	data, err := readAll(ctx, io.MultiReader(bytes.NewReader(head), f), info.Size(), maxReadBytes)
	if errors.Is(err, errTooLong) {
		return "", "", tooLarge(maxReadBytes+1, shown) // it has grown meanwhile
	}
	if err != nil {
		return "", "", err
	}
	text, encoding, ok := decoded(data)
	if !ok {
		return "", "", binary(data, info.Size(), shown)
	}
	return text, encoding, nil
}

func tooLarge(size int64, shown string) error {
	return toolcrib.Failf(toolcrib.ExecutionFailed,
		"%s has %d bytes, more than the %d that are read at once; read a part of it with offset and limit (lines)", shown,
		size, maxReadBytes)
}

var errTooLong = errors.New("longer than allowed")

// reader reads in chunks, and checks the context before each.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(into []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(into[:min(len(into), chunkBytes)])
}

// readAll reads r to its end. It returns errTooLong for more than limit bytes.
func readAll(ctx context.Context, r io.Reader, hint, limit int64) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(min(max(hint, 0), limit)) + bytes.MinRead)
	_, err := b.ReadFrom(io.LimitReader(reader{ctx, r}, limit+1))
	if int64(b.Len()) > limit {
		return nil, errTooLong
	}
	return b.Bytes(), err
}

// readLines returns limit lines, or all if limit is 0, starting with line first, at most maxReadBytes
// of them. It keeps no more than that in memory.
func readLines(
	ctx context.Context, f io.Reader, info fs.FileInfo, shown string, first, limit int64,
) (readFileResult, error) {
	head, encoding, err := sniff(f, info, shown)
	if err != nil {
		return readFileResult{}, err
	}
	var whole io.Reader = reader{ctx, io.MultiReader(bytes.NewReader(head), f)}
	if encoding != "" {
		whole = transform.NewReader(whole, fromUTF16(encoding))
	}
	r := bufio.NewReaderSize(whole, chunkBytes)
	for line := int64(1); line < first; line++ {
		if _, err := nextLine(r, nil, skipped); err == io.EOF {
			return readFileResult{}, beyond(first, line-1, shown)
		} else if err != nil {
			return readFileResult{}, err
		}
	}
	finish := func(content []byte, next int64) (readFileResult, error) {
		text, other, ok := decoded(content)
		if !ok {
			return readFileResult{}, binary(content, info.Size(), shown)
		}
		return readFileResult{Content: text, Encoding: cmp.Or(encoding, other), NextOffset: next}, nil
	}
	var content []byte
	for line := first; ; line++ {
		_, ended := r.Peek(1) // other errors than io.EOF are found by reading
		switch {
		case ended == io.EOF && line == first && first > 1:
			return readFileResult{}, beyond(first, first-1, shown)
		case ended == io.EOF:
			return finish(content, 0)
		case limit > 0 && line-first >= limit:
			return finish(content, line)
		}
		whole := len(content)
		content, err = nextLine(r, content, maxReadBytes)
		switch {
		case errors.Is(err, errTooLong) && whole > 0:
			return finish(content[:whole], line)
		case errors.Is(err, errTooLong):
			return readFileResult{}, toolcrib.Failf(toolcrib.ExecutionFailed, "line %d of %s is longer than %d bytes", line,
				shown, maxReadBytes)
		case err != nil:
			return readFileResult{}, err
		}
	}
}

func beyond(offset, lines int64, shown string) error {
	return toolcrib.Failf(toolcrib.InvalidArguments, "offset %d is beyond the end: %s has %s", offset, shown,
		guard.Count(int(lines), "line"))
}

const skipped = -1

// nextLine appends the next line, of any length and with its line break, to into, or skips it if keep
// is skipped. The error is errTooLong if into would be longer than keep bytes, and io.EOF after the
// last line.
func nextLine(r *bufio.Reader, into []byte, keep int) ([]byte, error) {
	for some := false; ; some = true {
		part, err := r.ReadSlice('\n')
		if err == io.EOF && (some || len(part) > 0) {
			err = nil
		}
		if err != nil && err != bufio.ErrBufferFull {
			return into, err
		}
		if keep != skipped {
			if len(into)+len(part) > keep {
				return into, errTooLong
			}
			into = append(into, part...)
		}
		if err == nil {
			return into, nil
		}
	}
}
