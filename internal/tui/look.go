package tui

import (
	"strings"

	"github.com/toolcrib/toolcrib/internal/render"
)

// Look says what the terminal can show. The zero value is plain ASCII.
type Look struct {
	Color   bool // the sixteen colours
	Unicode bool // characters other than ASCII
}

// LookOf tells from the environment what a terminal can show: colours unless
// NO_COLOR is set (https://no-color.org) or the terminal is dumb, other characters
// than ASCII if the locale is of UTF-8.
func LookOf(getenv func(string) string, goos string) Look {
	locale := getenv("LC_ALL")
	for _, name := range []string{"LC_CTYPE", "LANG"} {
		if locale == "" {
			locale = getenv(name)
		}
	}
	locale = strings.ToLower(locale)
	utf8 := strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
	return Look{
		Color:   getenv("NO_COLOR") == "" && getenv("TERM") != "dumb",
		Unicode: utf8 || goos == "windows",
	}
}

// signs replaces the signs that the terminal cannot show.
func (l Look) signs(text string) string {
	if l.Unicode {
		return text
	}
	return asciiSigns.Replace(text)
}

// Signs replaces the signs of this program that the terminal cannot show.
func (l Look) Signs(text string) string { return l.signs(text) }

func (l Look) style(width int) render.Style { return render.Style{Color: l.Color, Width: width} }

// spinner are the pictures of work in progress.
func (l Look) spinner() []string {
	if l.Unicode {
		return []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}
	}
	return []string{"-", "\\", "|", "/"}
}
