package store

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

// Doc is something that is kept beside the journals and follows from the system journal:
// a switch, a remembered approval, a session, a user, group, password or token.
type Doc struct {
	Kind string // one of the constants below
	ID   string
	User string      // whose it is; "" = nobody's
	Keys access.Keys // of the name of a user or group
	At   int64       // of the event that made it so, in Unix microseconds
	Gone bool        // it was removed or revoked, and is kept
	Text string      // JSON; "" = it no longer exists
}

// The kinds of documents. The text of a password is its hash; in the system journal only the
// digest of that stands.
const (
	DocOverride   = "override"
	DocRemembered = "remembered"
	DocSession    = "session"
	DocUser       = "user"
	DocGroup      = "group"
	DocPassword   = "password"
	DocToken      = "token"
	DocCounter    = "counter" // how often a sealed table was changed, by its name
)

// SealedTable is a group of documents under one seal, with a counter of its changes.
type SealedTable struct {
	Name  string
	Kinds []string
}

// SealedDocs are the sealed tables, by their place in [Record.Tables].
var SealedDocs = [SealedTables]SealedTable{
	SealedOverrides:  {"overrides", []string{DocOverride}},
	SealedRemembered: {"remembered", []string{DocRemembered}},
	SealedAccess:     {"access", []string{DocUser, DocGroup, DocPassword, DocToken}},
}

// Sealed returns the sealed table that has documents of a kind; ok is false if none has.
func Sealed(kind string) (table int, ok bool) {
	table = slices.IndexFunc(SealedDocs[:], func(t SealedTable) bool { return slices.Contains(t.Kinds, kind) })
	return table, table >= 0
}

// PasswordDigest is the SHA-256, in hex, of the hash of a password; "" = none.
func PasswordDigest(hash string) string {
	if hash == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(hash))
	return hex.EncodeToString(sum[:])
}

// DocsOf returns what an event of the system journal makes of documents, the one that it is
// about first. A store keeps what this returns for each event, and verifying compares that.
func DocsOf(e *SystemEvent) ([]Doc, error) {
	d := Doc{At: e.Time.UnixMicro()}
	switch e.Kind {
	case SystemOverrideSet, SystemOverrideReset:
		d.Kind = DocOverride
	case SystemRemembered, SystemForgotten:
		d.Kind = DocRemembered
	case SystemSessionMade, SystemSessionRemoved:
		d.Kind = DocSession
	case access.UserAdded, access.UserChanged, access.UserRemoved:
		d.Kind = DocUser
	case access.GroupPut, access.GroupRemoved:
		d.Kind = DocGroup
	case access.PasswordSet:
		d.Kind = DocPassword
	case access.TokenIssued, access.TokenRevoked:
		d.Kind = DocToken
	default:
		return nil, nil
	}
	var of struct {
		ID      string          `json:"id"`
		Name    string          `json:"name"`
		Kind    OverrideKind    `json:"kind"`
		Session string          `json:"session_id"`
		User    json.RawMessage `json:"user"` // a name or, of a change of users, all of the user
		Group   json.RawMessage `json:"group"`
		Token   json.RawMessage `json:"token"`
		Digest  string          `json:"digest"`
	}
	err := json.Unmarshal(e.Payload, &of)
	d.ID, d.Text = of.Name, string(e.Payload)
	switch d.Kind {
	case DocOverride:
		d.ID = string(of.Kind) + " " + of.Name
	case DocRemembered:
		d.ID = of.ID
	case DocSession:
		d.ID = of.Session
	case DocUser:
		d.Text, d.Keys = string(of.User), access.KeysOf(of.Name)
	case DocGroup:
		d.Text, d.Keys = string(of.Group), access.KeysOf(of.Name)
	case DocPassword:
		d.Text = of.Digest
	case DocToken:
		var issued struct {
			Claims struct {
				Subject string `json:"sub"`
			} `json:"claims"`
		}
		if err == nil {
			err = json.Unmarshal(of.Token, &issued)
		}
		d.Text, d.User = string(of.Token), issued.Claims.Subject
	}
	if err == nil && (d.Kind == DocRemembered || d.Kind == DocSession) {
		err = json.Unmarshal(of.User, &d.User)
	}
	switch e.Kind {
	case SystemForgotten, access.TokenRevoked:
		d.Gone = true
	case SystemOverrideReset, SystemSessionRemoved, access.GroupRemoved:
		d.Text = ""
	case access.UserRemoved:
		d.Gone = true
		return []Doc{d, {Kind: DocPassword, ID: d.ID}}, err
	}
	return []Doc{d}, err
}

// docs are those that a system journal mentions, by kind, ID and user.
type docs struct {
	all     map[[3]string]Doc
	changes [SealedTables]uint64
}

func (d *docs) put(doc Doc) {
	key := [3]string{doc.Kind, doc.ID, doc.User}
	if d.all[key] = doc; doc.Text == "" {
		delete(d.all, key)
	}
}

// learn takes what an event tells.
func (d *docs) learn(e *SystemEvent) error {
	list, err := DocsOf(e)
	for i, doc := range list {
		if d.put(doc); i > 0 {
			continue
		}
		if table, ok := Sealed(doc.Kind); ok {
			d.changes[table]++
		}
	}
	return err
}

// unlike returns an error if what is kept is not what the system journal says, up to last.
func (d *docs) unlike(last toolcrib.Seq, each func(do func(Doc) error) error) error {
	for table, n := range d.changes {
		d.put(Doc{Kind: DocCounter, ID: SealedDocs[table].Name, Text: strconv.FormatUint(n, 10)})
	}
	n := 0
	err := each(func(doc Doc) error {
		n++
		if doc.Kind == DocPassword {
			doc.Text = PasswordDigest(doc.Text)
		}
		if want, ok := d.all[[3]string{doc.Kind, doc.ID, doc.User}]; !ok || doc != want {
			return systemError(last, fmt.Sprintf("the %s %s does not match its events", doc.Kind, doc.ID))
		}
		return nil
	})
	if err == nil && n < len(d.all) {
		err = systemError(last, "something that it records is missing: a switch, approval, session, user, group, password, token or counter")
	}
	return err
}
