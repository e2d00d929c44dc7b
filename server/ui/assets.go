package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// assets are the files of the pages: the style sheet, which is all of assets/style in order, the modules, icons.
type assets struct {
	version string           // hash of all; it is part of their addresses
	files   map[string]asset // by name
}

type asset struct {
	kind         string // media type
	plain, small []byte // as they are, and compressed
}

func readAssets(from fs.FS) (*assets, error) {
	a := &assets{files: map[string]asset{}}
	var style bytes.Buffer
	sum := sha256.New()
	err := fs.WalkDir(from, "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		sum.Write([]byte(name))
		sum.Write(data)
		if strings.HasPrefix(name, "assets/style/") {
			style.Write(data)
			return nil
		}
		return a.add(strings.TrimPrefix(name, "assets/"), data)
	})
	if err != nil {
		return nil, err
	}
	a.version = hex.EncodeToString(sum.Sum(nil)[:6])
	return a, a.add("style.css", style.Bytes())
}

func (a *assets) add(name string, data []byte) error {
	kind := mime.TypeByExtension(path.Ext(name))
	switch path.Ext(name) { // independent of the system's table
	case ".js":
		kind = "text/javascript; charset=utf-8"
	case ".css":
		kind = "text/css; charset=utf-8"
	case ".svg":
		kind = "image/svg+xml"
	case ".webmanifest":
		kind = "application/manifest+json"
	}
	var small bytes.Buffer
	w, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	a.files[name] = asset{kind, data, small.Bytes()}
	return err
}

// address returns the address of a file, which changes with the content of any of them. Templates have it as "asset".
func (a *assets) address(name string) string { return "/assets/" + a.version + "/" + name }

// assetsAge is how long browsers keep a file.
const assetsAge = "public, max-age=31536000, immutable"

// serveAsset answers with a file. A file of an earlier or later version has the present content for a short time only,
// while servers of two versions run side by side.
func serveAsset(p *page) error {
	one, ok := p.assets.files[p.R.PathValue("file")]
	if !ok {
		return errNoPage(p)
	}
	h := p.W.Header()
	h.Set("Cache-Control", assetsAge)
	if p.R.PathValue("version") != p.assets.version {
		h.Set("Cache-Control", "no-cache")
	}
	h.Set("Content-Type", one.kind)
	h.Set("Vary", "Accept-Encoding")
	body := one.plain
	if strings.Contains(p.R.Header.Get("Accept-Encoding"), "gzip") && len(one.small) < len(one.plain) {
		h.Set("Content-Encoding", "gzip")
		body = one.small
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	p.wrote = true
	p.W.WriteHeader(http.StatusOK)
	_, _ = p.W.Write(body) // the client may have disconnected
	return nil
}
