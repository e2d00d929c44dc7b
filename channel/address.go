package channel

import (
	"cmp"
	"errors"
	"net/url"
	"strings"
)

// Address is the address of an account: SCHEME://USER:PASSWORD@HOST/?chats=CHAT, as messengers of notifications have
// it. With http or https as the scheme it names a server other than the usual one.
type Address struct {
	Base           *url.URL // of the API, without user and query
	User, Password string
	Usual          Usual
}

// Usual is the chat of messages that name none, or "".
type Usual string

// Chat implements [Sender].
func (u Usual) Chat(named string) (string, error) {
	if chat := cmp.Or(named, string(u)); chat != "" {
		return chat, nil
	}
	return "", errors.New("no chat is named, and the address of the channel has none (?chats=ID)")
}

// ParseAddress reads an address. scheme is that of the API, and usual the base for the hosts of that scheme that are
// only a word, such as telegram. The error does not contain any of the address.
func ParseAddress(text, scheme, usual string) (a Address, err error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return a, errors.New("is not a valid address")
	case u.Host == "" || u.Scheme != scheme && u.Scheme != "https" && u.Scheme != "http":
		return a, errors.New("must be " + scheme + "://… or https://…")
	}
	a.User = u.User.Username()
	a.Password, _ = u.User.Password()
	q := u.Query()
	for _, key := range []string{"chats", "rooms"} {
		if first, _, _ := strings.Cut(q.Get(key), ","); first != "" {
			a.Usual = Usual(first)
		}
	}
	a.Base = &url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(u.Path, "/")}
	if u.Scheme == scheme {
		a.Base.Scheme = "https"
		if !strings.Contains(u.Host, ".") && usual != "" {
			a.Base, err = url.Parse(usual)
		}
	}
	return a, err
}
