package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/store"
)

// accessFacts is what the system journal tells of users, groups, passwords and tokens.
// What is kept of each is the document that stands in its last change.
type accessFacts struct {
	changes       uint64
	users, groups map[string]string
	removed       map[string]bool // users
	passwords     map[string]string
	tokens        map[string]string
	revoked       map[string]bool
}

func newAccessFacts() *accessFacts {
	return &accessFacts{
		users: map[string]string{}, groups: map[string]string{}, removed: map[string]bool{}, passwords: map[string]string{},
		tokens: map[string]string{}, revoked: map[string]bool{},
	}
}

// learn takes what a change tells.
func (f *accessFacts) learn(e *store.SystemEvent) error {
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
	f.changes++
	switch e.Kind {
	case access.UserAdded, access.UserChanged, access.UserRemoved:
		f.users[c.Name], f.removed[c.Name] = string(c.User), e.Kind == access.UserRemoved
		if e.Kind == access.UserRemoved {
			delete(f.passwords, c.Name)
		}
	case access.GroupPut:
		f.groups[c.Name] = string(c.Group)
	case access.GroupRemoved:
		delete(f.groups, c.Name)
	case access.PasswordSet:
		if f.passwords[c.Name] = c.Digest; c.Digest == "" {
			delete(f.passwords, c.Name)
		}
	case access.TokenIssued, access.TokenRevoked:
		f.tokens[c.Name], f.revoked[c.Name] = string(c.Token), e.Kind == access.TokenRevoked
	}
	return nil
}

// verifyAccess compares what is kept of people and tokens with what the journal says.
func (sn snapshot) verifyAccess(ctx context.Context, f *accessFacts, last toolcrib.Seq) error {
	users := func(scan scanFunc) (string, bool, error) {
		var name, folded, look, doc string
		var removed bool
		err := scan(&name, &folded, &look, &removed, &doc)
		want, ok := f.users[name]
		keys := access.KeysOf(name)
		return "user " + name, ok && doc == want && removed == f.removed[name] && folded == keys.Folded && look == keys.Look, err
	}
	groups := func(scan scanFunc) (string, bool, error) {
		var name, folded, look, doc string
		err := scan(&name, &folded, &look, &doc)
		want, ok := f.groups[name]
		keys := access.KeysOf(name)
		return "group " + name, ok && doc == want && folded == keys.Folded && look == keys.Look, err
	}
	passwords := func(scan scanFunc) (string, bool, error) {
		var user, hash string
		err := scan(&user, &hash)
		return "the password of " + user, f.passwords[user] == digestOf(hash) && hash != "", err
	}
	tokens := func(scan scanFunc) (string, bool, error) {
		var id, user, doc string
		var revoked bool
		if err := scan(&id, &user, &revoked, &doc); err != nil {
			return "", false, err
		}
		var i access.Issued
		err := decodeDoc([]byte(doc), &i)
		want, ok := f.tokens[id]
		return "token " + id, ok && doc == want && revoked == f.revoked[id] && user == i.Claims.Subject, err
	}
	for _, table := range []struct {
		query string
		check func(scan scanFunc) (what string, ok bool, err error)
		rows  int
	}{
		{"SELECT name, folded, look, removed, doc FROM users", users, len(f.users)},
		{"SELECT name, folded, look, doc FROM user_groups", groups, len(f.groups)},
		{"SELECT user, hash FROM passwords", passwords, len(f.passwords)},
		{"SELECT id, user, revoked, doc FROM tokens", tokens, len(f.tokens)},
	} {
		n := 0
		err := sn.each(ctx, table.query, nil, func(scan scanFunc) error {
			n++
			what, ok, err := table.check(scan)
			if err == nil && !ok {
				err = systemError(last, fmt.Sprintf("%s is not as it tells", what))
			}
			return err
		})
		if err == nil && n < table.rows {
			err = systemError(last, "a user, group, password or token that it tells of is gone")
		}
		if err != nil {
			return err
		}
	}
	return sn.verifyCounter(ctx, "access", f.changes, last)
}

// verifyCounter compares a counter of changes with how many there were.
func (sn snapshot) verifyCounter(ctx context.Context, name string, changes uint64, last toolcrib.Seq) error {
	var value uint64
	if err := sn.row(ctx, "SELECT value FROM counters WHERE name = ?", []any{name}, &value); err != nil {
		return err
	}
	if value != changes {
		return systemError(last, fmt.Sprintf("%s changed %d times, and their counter is at %d", name, changes, value))
	}
	return nil
}

// verifyRemembered compares the remembered approvals with what the journal says.
func (sn snapshot) verifyRemembered(ctx context.Context, want map[string]store.Remembered, changes uint64, last toolcrib.Seq) error {
	n := 0
	err := sn.each(ctx, selectRemembered, nil, func(scan scanFunc) error {
		m, err := scanRemembered(scan)
		if err != nil {
			return err
		}
		n++
		if w, ok := want[m.ID]; !ok || !m.Equal(w) {
			return systemError(last, fmt.Sprintf("the remembered approval %s is not the one that it tells of", m.ID))
		}
		return nil
	})
	if err == nil && n < len(want) {
		err = systemError(last, "a remembered approval that it tells of is gone")
	}
	if err != nil {
		return err
	}
	return sn.verifyCounter(ctx, "remembered", changes, last)
}

// learnRemembered takes what an event tells of a remembered approval.
func (c *systemCheck) learnRemembered(e *store.SystemEvent) error {
	var m store.Remembered
	if err := json.Unmarshal(e.Payload, &m); err != nil {
		return err
	}
	c.rememberedChanges++
	c.remembered[m.ID] = m
	return nil
}
