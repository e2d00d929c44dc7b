package asset

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"net/http"
	"strings"
)

const (
	sniffBytes = 512     // what the standard's table of types looks at (WHATWG MIME sniffing)
	maxHead    = 8 << 20 // bytes before the size of an image: a camera puts previews and profiles there
)

// kind is what the content of a file says that it is.
type kind struct {
	mediaType     string
	width, height int // pixels; 0 = not an image, or not told
}

// identify reads the head of a file. An image that is broken has a type and no size.
func identify(ctx context.Context, r io.Reader) (kind, error) {
	head := make([]byte, sniffBytes)
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return kind{}, err
	}
	head = head[:n]
	k := kind{mediaType: http.DetectContentType(head)}
	if strings.HasPrefix(k.mediaType, "text/") && bytes.Contains(head, []byte("<svg")) {
		k.mediaType = "image/svg+xml" // without a size in pixels: it has none of its own
	}
	rest := &bounded{ctx: ctx, r: io.MultiReader(bytes.NewReader(head), r), left: maxHead}
	switch k.mediaType {
	case "image/png":
		k.measure(png.DecodeConfig(rest))
	case "image/jpeg":
		k.measure(jpeg.DecodeConfig(rest))
	case "image/gif":
		k.measure(gif.DecodeConfig(rest))
	case "image/webp":
		k.width, k.height = webpSize(head)
	case "image/bmp":
		k.width, k.height = bmpSize(head)
	}
	return k, ctx.Err()
}

func (k *kind) measure(c image.Config, err error) {
	if err == nil && c.Width > 0 && c.Height > 0 {
		k.width, k.height = c.Width, c.Height
	}
}

// bounded ends after left bytes, or with ctx.
type bounded struct {
	ctx  context.Context
	r    io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if b.left <= 0 {
		return 0, io.EOF
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// webpSize reads the first chunk of a WebP file (RFC 9649): lossy, lossless or
// extended.
func webpSize(head []byte) (width, height int) {
	if len(head) < 30 {
		return 0, 0
	}
	switch body := head[20:]; string(head[12:16]) {
	case "VP8 ":
		if body[3] != 0x9d || body[4] != 0x01 || body[5] != 0x2a {
			return 0, 0
		}
		return int(binary.LittleEndian.Uint16(body[6:]) & 0x3fff), int(binary.LittleEndian.Uint16(body[8:]) & 0x3fff)
	case "VP8L":
		if body[0] != 0x2f {
			return 0, 0
		}
		bits := binary.LittleEndian.Uint32(body[1:])
		return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1
	case "VP8X":
		three := func(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }
		return three(body[4:]) + 1, three(body[7:]) + 1
	}
	return 0, 0
}

// bmpSize reads the header of a Windows bitmap; a negative height means that the
// lines stand from the top down.
func bmpSize(head []byte) (width, height int) {
	if len(head) < 26 {
		return 0, 0
	}
	if binary.LittleEndian.Uint32(head[14:]) == 12 { // the header of OS/2
		return int(binary.LittleEndian.Uint16(head[18:])), int(binary.LittleEndian.Uint16(head[20:]))
	}
	w, h := int64(int32(binary.LittleEndian.Uint32(head[18:]))), int64(int32(binary.LittleEndian.Uint32(head[22:])))
	if h < 0 {
		h = -h
	}
	if w <= 0 || h == 0 {
		return 0, 0
	}
	return int(w), int(h)
}
