// Package media recognizes the files that may go with a prompt.
package media

import (
	"net/http"
	"strings"
	"unicode/utf8"
)

// Type returns the media type of a file by its content, whatever its name. It returns "" if no model
// takes such a file.
func Type(data []byte) string {
	media, _, _ := strings.Cut(http.DetectContentType(data), ";")
	switch media {
	case "image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf":
		return media
	}
	if utf8.Valid(data) && !strings.ContainsRune(string(data), 0) {
		return "text/plain"
	}
	return ""
}
