package store

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

// Doc is something that is kept beside the journals and follows from the system journal:
// a switch, a remembered approval, a session, a user, group, password or token, or how
// often such things were changed. Two with the same text are the same in all.
type Doc struct{ Kind, Key, Text string }

// OverrideDoc is an override.
func OverrideDoc(o Override) (Doc, error) {
	text, err := EncodeJSON(o)
	return Doc{"override of " + string(o.Kind), o.Name, string(text)}, err
}

// RememberedDoc is a remembered approval.
func RememberedDoc(m Remembered) (Doc, error) {
	text, err := EncodeJSON(m)
	return Doc{"remembered approval", m.ID, string(text)}, err
}

// SessionDoc is a session that was made at a time.
func SessionDoc(s SessionMade, at time.Time) Doc {
	return Doc{"session", string(s.ID) + " of " + s.User, fmt.Sprintf("%d %s", at.UnixMicro(), s.Name)}
}

// NamedDoc is a user or a group; kind is "user" or "group", doc its JSON.
func NamedDoc(kind, name string, keys access.Keys, removed bool, doc string) Doc {
	return Doc{kind, name, fmt.Sprintf("%t %q %q %s", removed, keys.Folded, keys.Look, doc)}
}

// PasswordDoc is the password of a user, by the digest of its hash.
func PasswordDoc(user, digest string) Doc { return Doc{"password of", user, digest} }

// PasswordDigest is the SHA-256, in hex, of the hash of a password; "" = there is none.
func PasswordDigest(hash string) string {
	if hash == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(hash))
	return hex.EncodeToString(sum[:])
}

// TokenDoc is an access token of a user; doc is its JSON.
func TokenDoc(id, user string, revoked bool, doc string) Doc {
	return Doc{"token", id, fmt.Sprintf("%t %q %s", revoked, user, doc)}
}

// CounterDoc is how often the rows of a sealed table were changed.
func CounterDoc(table string, changes uint64) Doc {
	return Doc{"counter of", table, strconv.FormatUint(changes, 10)}
}

// The names of the sealed tables, by their place in [Record.Tables].
var SealedNames = [SealedTables]string{SealedOverrides: "overrides", SealedRemembered: "remembered", SealedAccess: "access"}

// docs are those that a system journal tells of.
type docs struct {
	texts   map[Doc]string // by kind and key
	changes [SealedTables]uint64
}

func (d *docs) put(doc Doc, there bool) {
	key := Doc{Kind: doc.Kind, Key: doc.Key}
	if d.texts[key] = doc.Text; !there {
		delete(d.texts, key)
	}
}

// all returns the texts, with those of the counters.
func (d *docs) all() map[Doc]string {
	for table, n := range d.changes {
		d.put(CounterDoc(SealedNames[table], n), true)
	}
	return d.texts
}

// learn takes what an event tells.
func (d *docs) learn(e *SystemEvent) error {
	var doc Doc
	switch e.Kind {
	case SystemOverrideSet, SystemOverrideReset:
		var o Override
		err := json.Unmarshal(e.Payload, &o)
		if err == nil {
			doc, err = OverrideDoc(o)
		}
		d.changes[SealedOverrides]++
		d.put(doc, e.Kind == SystemOverrideSet)
		return err
	case SystemRemembered, SystemForgotten:
		var m Remembered
		err := json.Unmarshal(e.Payload, &m)
		if err == nil {
			doc, err = RememberedDoc(m)
		}
		d.changes[SealedRemembered]++
		d.put(doc, true)
		return err
	case SystemSessionMade, SystemSessionRemoved:
		var s SessionMade
		err := json.Unmarshal(e.Payload, &s)
		d.put(SessionDoc(s, e.Time), e.Kind == SystemSessionMade)
		return err
	}
	return d.learnAccess(e)
}

// learnAccess takes what a change of people and tokens tells.
func (d *docs) learnAccess(e *SystemEvent) error {
	switch e.Kind {
	case access.UserAdded, access.UserChanged, access.UserRemoved, access.GroupPut, access.GroupRemoved,
		access.PasswordSet, access.TokenIssued, access.TokenRevoked:
	default:
		return nil
	}
	var c struct {
		Name   string          `json:"name"`
		User   json.RawMessage `json:"user"`
		Group  json.RawMessage `json:"group"`
		Token  json.RawMessage `json:"token"`
		Digest string          `json:"digest"`
	}
	if err := json.Unmarshal(e.Payload, &c); err != nil {
		return err
	}
	d.changes[SealedAccess]++
	switch e.Kind {
	case access.UserAdded, access.UserChanged, access.UserRemoved:
		d.put(NamedDoc("user", c.Name, access.KeysOf(c.Name), e.Kind == access.UserRemoved, string(c.User)), true)
		if e.Kind == access.UserRemoved {
			d.put(PasswordDoc(c.Name, ""), false)
		}
	case access.GroupPut, access.GroupRemoved:
		d.put(NamedDoc("group", c.Name, access.KeysOf(c.Name), false, string(c.Group)), e.Kind == access.GroupPut)
	case access.PasswordSet:
		d.put(PasswordDoc(c.Name, c.Digest), c.Digest != "")
	case access.TokenIssued, access.TokenRevoked:
		var of struct {
			Claims struct {
				Subject string `json:"sub"`
			} `json:"claims"`
		}
		if err := json.Unmarshal(c.Token, &of); err != nil {
			return err
		}
		d.put(TokenDoc(c.Name, of.Claims.Subject, e.Kind == access.TokenRevoked, string(c.Token)), true)
	}
	return nil
}

// unlike returns an error if what is kept is not what the system journal tells of, up to last.
func (d *docs) unlike(last toolcrib.Seq, each func(do func(Doc) error) error) error {
	want, n := d.all(), 0
	err := each(func(doc Doc) error {
		n++
		if text, ok := want[Doc{Kind: doc.Kind, Key: doc.Key}]; !ok || text != doc.Text {
			return systemError(last, fmt.Sprintf("the %s %s is not as it tells", doc.Kind, doc.Key))
		}
		return nil
	})
	if err == nil && n < len(want) {
		err = systemError(last, "something that it tells of is gone: a switch, approval, session, user, group, password, token or counter")
	}
	return err
}
