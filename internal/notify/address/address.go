// Package address knows the addresses of approvals.notify (contract §2): which there
// may be, and what of one may be shown.
package address

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib/internal/hosts"
)

// IsWebhook reports whether an address is one of http or https.
func IsWebhook(text string) bool {
	scheme := Scheme(text)
	return scheme == "https" || scheme == "http"
}

// Scheme is the scheme of an address; "" = it has none.
func Scheme(text string) string {
	scheme, _, ok := strings.Cut(text, "://")
	if !ok {
		return ""
	}
	return strings.ToLower(scheme)
}

// Schemes are those of the addresses that can be told.
func Schemes() []string { return append([]string{"https", "http"}, Messengers()...) }

// Messengers are the schemes that nicholas-fedor/shoutrrr sends to. Three of its own are
// left out: generic, which is what a webhook is for, logger, which tells nobody, and smtp.
func Messengers() []string {
	return []string{
		"bark", "discord", "googlechat", "gotify", "ifttt", "join", "lark", "matrix", "mattermost", "notifiarr", "ntfy",
		"opsgenie",
		"pagerduty", "pushbullet", "pushover", "rocketchat", "signal", "slack", "teams", "telegram", "wecom", "zulip",
	}
}

// Check says what is wrong with an address that was filled in; "" = it can be tried. It
// tells nothing of the address but its scheme.
func Check(text string) string {
	scheme := Scheme(text)
	switch {
	case scheme == "":
		return "must begin with a scheme, such as https:// or slack://"
	case !slices.Contains(Schemes(), scheme):
		return "has a scheme that is not known; use one of " + strings.Join(Schemes(), ", ")
	case !IsWebhook(text):
		return "" // messengers have tokens in it that are not part of a URL
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "is not a valid address"
	case u.Hostname() == "":
		return "is an address without a host"
	case u.User != nil:
		return "has a user name or password, which are not sent: a webhook proves by its signature where it comes from"
	case u.Fragment != "":
		return "has a fragment (#…), which is never sent"
	}
	return ""
}

// Where is what may be shown of an address: the host of a webhook, the scheme of any
// other, whose host may be a token.
func Where(text string) string {
	if scheme := Scheme(text); slices.Contains(Messengers(), scheme) {
		return scheme
	}
	if u, err := url.Parse(text); err == nil && IsWebhook(text) && u.Host != "" {
		return u.Host
	}
	return "an address"
}

// IsClear reports whether what is sent to an address can be read, and changed, on its way:
// plain http to another machine.
func IsClear(text string) bool {
	if Scheme(text) != "http" {
		return false
	}
	u, err := url.Parse(text)
	return err != nil || !hosts.Loopback(u.Hostname())
}

// secretPrefix begins a secret of Standard Webhooks that is written in base64.
const secretPrefix = "whsec_"

// minKey is the shortest key that signs, in bytes.
const minKey = 16

// Key reads the secret of a webhook: whsec_ and base64, or any other text of at least
// 16 bytes, which is taken as it is. The error holds nothing of it.
func Key(secret string) ([]byte, error) {
	key := []byte(secret)
	if text, ok := strings.CutPrefix(secret, secretPrefix); ok {
		var err error
		if key, err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, errors.New("begins with whsec_, but what follows is not base64")
		}
	}
	if len(key) < minKey {
		return nil, fmt.Errorf("is too short: a key has at least %d bytes", minKey)
	}
	return key, nil
}

// Secret writes a key as a receiver is given it.
func Secret(key []byte) string { return secretPrefix + base64.StdEncoding.EncodeToString(key) }
