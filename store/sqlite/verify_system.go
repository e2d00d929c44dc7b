package sqlite

import (
	"context"
	"crypto/hmac"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// systemCheck goes through the system journal.
type systemCheck struct {
	keys    *store.Keys
	against *store.Head               // nil = none
	facts   map[toolcrib.RunID]*facts // of each run; nil = not wanted
	used    store.Used                // what was used by what was pruned; nil = not wanted

	v         store.Verified
	prev      []byte
	overrides map[string]store.Override  // as the events leave them
	sessions  map[sessionKey]sessionFact // as the events leave them
	changes   uint64                     // of overrides
	access    *accessFacts               // as the events leave them
	record    store.Record               // of the head

	remembered        map[string]store.Remembered // as the events leave them
	rememberedChanges uint64
}

func (sn snapshot) verifySystem(ctx context.Context, c *systemCheck) (store.Verified, error) {
	if err := c.checkHead(); err != nil {
		return c.v, err
	}
	c.overrides, c.sessions = make(map[string]store.Override), make(map[sessionKey]sessionFact)
	c.access, c.remembered = newAccessFacts(), make(map[string]store.Remembered)
	var seq toolcrib.Seq
	for {
		page, err := systemPage(ctx, sn, seq)
		if err != nil {
			return c.v, err
		}
		if len(page) == 0 {
			break
		}
		for i := range page {
			seq = page[i].Seq
			if err := c.event(&page[i]); err != nil {
				return c.v, err
			}
		}
	}
	if c.against != nil && c.against.Seq > seq {
		return c.v, systemError(seq, fmt.Sprintf("it ends before event %d, which the kept head has: the store was put back to an older copy, or its end was cut off", c.against.Seq))
	}
	found, err := readSealed(ctx, sn)
	if err != nil {
		return c.v, err
	}
	if c.record, err = found.open(c.keys); err != nil {
		return c.v, err
	}
	if c.against != nil && c.against.Moves > c.record.Moves {
		return c.v, systemError(seq, "the kept head knows of later events of runs: the store was put back to an older copy")
	}
	if err := sn.verifyOverrides(ctx, c, seq); err != nil {
		return c.v, err
	}
	if err := sn.verifySessions(ctx, c, seq); err != nil {
		return c.v, err
	}
	if err := sn.verifyAccess(ctx, c.access, seq); err != nil {
		return c.v, err
	}
	if err := sn.verifyRemembered(ctx, c.remembered, c.rememberedChanges, seq); err != nil {
		return c.v, err
	}
	for table := range c.record.Tables {
		if err := checkTable(ctx, sn, c.keys, &c.record, table); err != nil {
			return c.v, err
		}
	}
	return c.v, nil
}

// sessionKey and sessionFact are a session as the system journal tells of it.
type (
	sessionKey  struct{ id, user string }
	sessionFact struct {
		name string
		at   int64
	}
)

// learnSession takes what an event tells of a session.
func (c *systemCheck) learnSession(e *store.SystemEvent) error {
	var of store.SessionMade
	if err := json.Unmarshal(e.Payload, &of); err != nil {
		return err
	}
	key := sessionKey{id: string(of.ID), user: of.User}
	if c.sessions[key] = (sessionFact{name: of.Name, at: e.Time.UnixMicro()}); e.Kind == store.SystemSessionRemoved {
		delete(c.sessions, key)
	}
	return nil
}

// verifySessions compares the sessions with what the journal says.
func (sn snapshot) verifySessions(ctx context.Context, c *systemCheck, last toolcrib.Seq) error {
	n := 0
	err := sn.each(ctx, "SELECT id, user, name, created_at FROM sessions", nil, func(scan scanFunc) error {
		var key sessionKey
		var have sessionFact
		if err := scan(&key.id, &key.user, &have.name, &have.at); err != nil {
			return err
		}
		n++
		if want, ok := c.sessions[key]; !ok || want != have {
			return systemError(last, fmt.Sprintf("session %s of %s is not the one that it tells of", key.id, key.user))
		}
		return nil
	})
	if err == nil && n < len(c.sessions) {
		err = systemError(last, "a session that it tells of is gone")
	}
	return err
}

func systemError(seq toolcrib.Seq, what string) *store.ChainError {
	return &store.ChainError{Run: store.SystemChain, Seq: seq, What: what}
}

// checkHead reports whether the head to compare with was sealed with this key.
func (c *systemCheck) checkHead() error {
	if c.against == nil {
		return nil
	}
	hash, err1 := hex.DecodeString(c.against.Hash)
	mac, err2 := hex.DecodeString(c.against.MAC)
	if err1 != nil || err2 != nil || !hmac.Equal(mac, c.keys.HeadMAC(c.against.Seq, c.against.Moves, hash)) {
		return systemError(c.against.Seq, "the kept head was not sealed with the key of this data folder")
	}
	return nil
}

// event checks the next event.
func (c *systemCheck) event(e *store.SystemEvent) error {
	c.v.Events++
	r := stored{seq: e.Seq, kind: e.Kind, time: e.Time.UnixMicro(), payload: e.Payload, payloadHash: e.PayloadHash, hash: e.Hash}
	if what := r.check(store.SystemChain, c.prev, toolcrib.Seq(c.v.Events)); what != "" {
		return systemError(e.Seq, what)
	}
	c.prev = e.Hash
	if c.against != nil && c.against.Seq == e.Seq && c.against.Hash != hex.EncodeToString(e.Hash) {
		return systemError(e.Seq, "the kept head has another hash: the journal was written anew")
	}
	if err := c.learn(e); err != nil {
		return systemError(e.Seq, "its content cannot be read: "+err.Error())
	}
	return nil
}

// learn takes what an event tells of other tables.
func (c *systemCheck) learn(e *store.SystemEvent) error {
	switch e.Kind {
	case store.SystemAnchor:
		c.v.Anchors++
	case store.SystemHeadAdopted:
		c.v.Adopted = e.Seq
	case store.SystemOverrideSet, store.SystemOverrideReset:
		var o store.Override
		if err := json.Unmarshal(e.Payload, &o); err != nil {
			return err
		}
		c.changes++
		key := string(o.Kind) + " " + o.Name
		if c.overrides[key] = o; e.Kind == store.SystemOverrideReset {
			delete(c.overrides, key)
		}
	case store.SystemSessionMade, store.SystemSessionRemoved:
		return c.learnSession(e)
	case store.SystemRemembered, store.SystemForgotten:
		return c.learnRemembered(e)
	}
	if accessKind(e.Kind) {
		return c.access.learn(e)
	}
	if c.facts == nil || !ofRun(e.Kind) {
		return nil
	}
	return c.learnRun(e)
}

func (c *systemCheck) learnRun(e *store.SystemEvent) error {
	var of struct {
		Run  toolcrib.RunID   `json:"run_id"`
		Used []store.UseEntry `json:"used"`
	}
	if err := json.Unmarshal(e.Payload, &of); err != nil {
		return err
	}
	for _, u := range of.Used {
		c.used.Add(u)
	}
	f := c.facts[of.Run]
	if f == nil {
		f = new(facts)
		c.facts[of.Run] = f
	}
	return f.learn(e.Kind, e.Payload)
}

// verifyOverrides compares what is switched on and off with what the journal says.
func (sn snapshot) verifyOverrides(ctx context.Context, c *systemCheck, last toolcrib.Seq) error {
	n := 0
	err := sn.each(ctx, selectOverrides, nil, func(scan scanFunc) error {
		o, err := scanOverride(scan)
		if err != nil {
			return err
		}
		n++
		if want, ok := c.overrides[string(o.Kind)+" "+o.Name]; !ok || want != o {
			return systemError(last, fmt.Sprintf("the override of %s %s is not the one that it tells of", o.Kind, o.Name))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if n < len(c.overrides) {
		return systemError(last, "an override that it tells of is gone")
	}
	var version uint64
	if err := sn.row(ctx, "SELECT value FROM counters WHERE name = 'overrides'", nil, &version); err != nil {
		return err
	}
	if version != c.changes {
		return systemError(last, fmt.Sprintf("overrides were changed %d times, and their counter is at %d", c.changes, version))
	}
	return nil
}
