// Package address checks the addresses of approvals.notify, and returns the part of them that may be
// shown.
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

// IsWebhook reports whether the scheme of an address is http or https.
func IsWebhook(text string) bool {
	scheme := Scheme(text)
	return scheme == "https" || scheme == "http"
}

// Scheme returns the scheme of an address in lowercase, or "".
func Scheme(text string) string {
	scheme, _, ok := strings.Cut(text, "://")
	if !ok {
		return ""
	}
	return strings.ToLower(scheme)
}

// Schemes returns the supported schemes.
func Schemes() []string { return append([]string{"https", "http"}, Messengers()...) }

// Messengers returns the schemes of messengers, which are those of nicholas-fedor/shoutrrr except
// generic, for which webhooks are used, logger, which notifies no one, and smtp.
func Messengers() []string {
	return []string{
		"bark", "discord", "googlechat", "gotify", "ifttt", "join", "lark", "matrix", "mattermost", "notifiarr", "ntfy",
		"opsgenie",
		"pagerduty", "pushbullet", "pushover", "rocketchat", "signal", "slack", "teams", "telegram", "wecom", "zulip",
	}
}

// Check returns the problem with a resolved address, or "". The text does not contain any of the
// address.
func Check(text string) string {
	scheme := Scheme(text)
	switch {
	case scheme == "":
		return "must begin with a scheme, such as https:// or slack://"
	case !slices.Contains(Schemes(), scheme):
		return "has a scheme that is not known; use one of " + strings.Join(Schemes(), ", ")
	case !IsWebhook(text):
		return "" // addresses of messengers may have tokens that are not valid in a URL
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

// Where returns the part of an address that may be shown: the host of a webhook, or the scheme of
// another address, whose host may be a token.
func Where(text string) string {
	if scheme := Scheme(text); slices.Contains(Messengers(), scheme) {
		return scheme
	}
	if u, err := url.Parse(text); err == nil && IsWebhook(text) && u.Host != "" {
		return u.Host
	}
	return "an address"
}

// IsClear reports whether messages to an address can be read and changed in transit, because it uses
// http to another machine.
func IsClear(text string) bool {
	if Scheme(text) != "http" {
		return false
	}
	u, err := url.Parse(text)
	return err != nil || !hosts.Loopback(u.Hostname())
}

// secretPrefix is the prefix of a base64 secret of Standard Webhooks.
const secretPrefix = "whsec_"

// minKey is the minimum length of a key, in bytes.
const minKey = 16

// Key returns the key for the secret of a webhook: whsec_ and base64, or any other text of at least
// 16 bytes, which is the key itself. The error does not contain any of it.
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

// Secret returns the secret of a webhook for a key.
func Secret(key []byte) string { return secretPrefix + base64.StdEncoding.EncodeToString(key) }
