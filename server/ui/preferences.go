package ui

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// languages are those that the table of texts has. The first is used if a browser asks for none of them.
var languages = []string{"en", "de"}

// Names of the cookies of preferences, which have no rights.
const (
	languageCookie = "toolcrib_language"
	themeCookie    = "toolcrib_theme"
)

// preferenceAge is how long a browser keeps a preference.
const preferenceAge = 365 * 24 * time.Hour

// languageOf returns the language that a person chose, or else the first one of the browser that there is.
func languageOf(r *http.Request) string {
	if c, err := r.Cookie(languageCookie); err == nil && slices.Contains(languages, c.Value) {
		return c.Value
	}
	for one := range strings.SplitSeq(r.Header.Get("Accept-Language"), ",") {
		tag, _, _ := strings.Cut(strings.TrimSpace(one), ";")
		base, _, _ := strings.Cut(strings.ToLower(tag), "-")
		if slices.Contains(languages, base) {
			return base
		}
	}
	return languages[0]
}

func themeOf(r *http.Request) string {
	if c, err := r.Cookie(themeCookie); err == nil && (c.Value == "light" || c.Value == "dark") {
		return c.Value
	}
	return ""
}

// setPreference keeps the language or the theme in the browser, and returns to the page.
func setPreference(p *page) error {
	name, valid := languageCookie, languages
	value := p.R.PostFormValue("language")
	if value == "" {
		name, valid, value = themeCookie, []string{"light", "dark", "system"}, p.R.PostFormValue("theme")
	}
	if !slices.Contains(valid, value) {
		return bad("unknown value %q (valid: %s)", value, strings.Join(valid, ", "))
	}
	http.SetCookie(p.W, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: int(preferenceAge / time.Second),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: p.R.TLS != nil,
	})
	return p.done(local(p.R.PostFormValue("next")))
}
