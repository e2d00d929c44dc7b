package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/ulid"
	"github.com/toolcrib/toolcrib/journal"
	"github.com/toolcrib/toolcrib/store"
)

// NewSession implements [store.Store].
func (s *Store) NewSession(ctx context.Context, user, name string) (store.SessionInfo, error) {
	if err := store.CheckSessionName(name); name != "" && err != nil {
		return store.SessionInfo{}, err
	}
	at := wholeMicro(s.now())
	made := store.SessionMade{ID: toolcrib.SessionID(ulid.New(store.SessionPrefix, at)), User: user, Name: name}
	err := s.write(ctx, &job{do: func(t *tx) error {
		if id, err := t.sessionNamed(user, name); err != nil || id != "" {
			if err == nil {
				err = reject(toolcrib.Errorf(toolcrib.CodeConflict, "session %s: the name is in use", name))
			}
			return err
		}
		return t.appendSystem(at, store.SystemSessionMade, made)
	}})
	if err != nil {
		return store.SessionInfo{}, err
	}
	return store.SessionInfo{ID: made.ID, Name: name, User: user, CreatedAt: at, UpdatedAt: at}, nil
}

// sessionNamed returns the session that a user has given a name, or "".
func (t *tx) sessionNamed(user, name string) (id string, err error) {
	if name == "" {
		return "", nil
	}
	err = t.row(`SELECT id FROM docs INDEXED BY docs_session
		WHERE kind = 'session' AND user = ? AND doc ->> 'name' = ? AND doc ->> 'name' <> ''`, []any{text(user), name}, &id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return id, err
}

// checkSession permits only runs of its user in a session, one at a time. It creates a session that
// does not exist. The runs of sub-agents belong to the run that started them.
func (t *tx) checkSession(run toolcrib.RunID, first toolcrib.Event) error {
	start, ok := first.Body.(*journal.RunStarted)
	if !ok || start.Session == "" || start.Parent != "" {
		return nil
	}
	user := start.Principal.User
	busy := store.SessionBusyError{Session: start.Session}
	err := t.row(`SELECT id, status FROM runs
		WHERE session_id = ? AND session_id <> '' AND user = ? AND parent_id = '' AND ended_at IS NULL AND id <> ?
		LIMIT 1`, []any{string(start.Session), user, string(run)}, &busy.Run, &busy.Status)
	switch {
	case err == nil:
		return reject(&busy)
	case !errors.Is(err, sql.ErrNoRows):
		return err
	}
	return t.ownSession(start.Session, user, first.Time)
}

// checkOnce rejects a run with the key of another run.
func (t *tx) checkOnce(run toolcrib.RunID, first toolcrib.Event) error {
	start, ok := first.Body.(*journal.RunStarted)
	if !ok || start.Once == "" {
		return nil
	}
	key, _, _ := strings.Cut(start.Once, ":")
	var other store.OnceError
	var once string
	err := t.row(`SELECT id, once FROM runs
		WHERE once >= ? AND once < ? AND once <> '' AND created_at > ? AND id <> ? LIMIT 1`,
		[]any{key + ":", key + ";", first.Time.Add(-store.OnceAge).UnixMicro(), string(run)}, &other.Run, &once)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err == nil {
		other.Same = once == start.Once
		err = reject(&other)
	}
	return err
}

// ownSession ensures that a user has a session. An ID made by a store belongs to one user, and does not
// exist for others; IDs chosen by a program are separate for each user.
func (t *tx) ownSession(id toolcrib.SessionID, user string, at time.Time) error {
	var all, own int
	err := t.row("SELECT count(*), count(*) FILTER (WHERE user = ?) FROM sessions WHERE id = ?",
		[]any{text(user), text(string(id))}, &all, &own)
	switch {
	case err != nil || own > 0:
		return err
	case all > 0 && strings.HasPrefix(string(id), store.SessionPrefix):
		return reject(sessionNotFound(string(id)))
	}
	made := store.SessionMade{ID: id, User: user}
	if store.CheckSessionName(string(id)) == nil {
		taken, err := t.sessionNamed(user, string(id))
		if err != nil {
			return err
		}
		if taken == "" {
			made.Name = string(id)
		}
	}
	return t.appendSystem(at, store.SystemSessionMade, made)
}

// lastRun selects the number of the newest run of a session in docs. Numbers increase with time.
const lastRun = `SELECT max(r.num) FROM runs r WHERE r.session_id = docs.id AND r.session_id <> ''
	AND r.user = docs.user AND r.parent_id = ''`

// putLast stores the newest run of a session after one of its runs was started or removed.
func (t *tx) putLast(rec *store.RunRecord, query string, args ...any) error {
	if rec.Session == "" || rec.Parent != "" {
		return nil
	}
	err := t.later("UPDATE docs SET last = "+query+" WHERE kind = 'session' AND id = ? AND user = ?",
		append(args, text(string(rec.Session)), text(rec.User))...)
	return err
}

func sessionNotFound(id string) error {
	return fmt.Errorf("session %s: %w", id, toolcrib.ErrNotFound)
}

// sessionColumns selects the data of a session s. Its title is the last message, the prompt, in the
// input of its oldest run that has its content.
const sessionColumns = `SELECT s.id, s.user, s.name, s.created_at, coalesce(last.id, ''), coalesce(last.status, ''),
	coalesce(last.ended_at, coalesce(last.created_at, s.created_at)), s.last, (SELECT count(*)` + runsOfSession + `),
	(SELECT CASE WHEN json_valid(payload) THEN payload ->> '$.input[#-1]' END FROM events
		WHERE key = (SELECT min(r.num)` + runsOfSession + ` AND r.pruned_at IS NULL) << 32 | 1)
	FROM `

const runsOfSession = " FROM runs r WHERE r.session_id = s.id AND r.session_id <> '' AND r.user = s.user AND r.parent_id = ''"

// Queries for the sessions of sessionColumns: one session, or pages by their newest runs, which read no
// other sessions.
const (
	aSession    = "sessions s LEFT JOIN runs last ON last.num = s.last "
	byNewestRun = `(SELECT id, user, doc ->> 'name' AS name, at AS created_at, last FROM docs INDEXED BY docs_last
		WHERE kind = 'session') s LEFT JOIN runs last ON last.num = s.last `
)

// Session implements [store.Store].
func (s *Store) Session(ctx context.Context, user, idOrName string) (store.SessionInfo, error) {
	for _, column := range []string{"id", "name"} {
		query, args := sessionColumns+aSession+"WHERE s."+column+" = ? AND s."+column+" <> ''", []any{idOrName}
		if user != "" {
			query, args = query+" AND s.user = ?", append(args, user)
		}
		found, _, err := s.sessions(ctx, query+" LIMIT 2", args)
		if err != nil {
			return store.SessionInfo{}, err
		}
		if len(found) == 1 {
			return found[0], nil
		}
	}
	return store.SessionInfo{}, sessionNotFound(idOrName)
}

// Sessions implements [store.Store].
func (s *Store) Sessions(ctx context.Context, f store.SessionFilter) (store.SessionPage, error) {
	where := clauses{text: "WHERE TRUE"}
	where.add(f.User != "", "s.user = ?", f.User)
	where.add(f.Token != "", `s.id IN (SELECT session_id FROM runs WHERE token = ? AND token <> '')
		AND EXISTS (SELECT 1`+runsOfSession+`) AND NOT EXISTS (SELECT 1`+runsOfSession+` AND r.token <> ?)`, f.Token, f.Token)
	if f.Cursor != "" {
		num, rest, ok := strings.Cut(f.Cursor, ":")
		id, user, ok2 := strings.Cut(rest, ":")
		last, err := strconv.ParseInt(num, 36, 64)
		if err != nil || !ok || !ok2 || last < 0 {
			return store.SessionPage{}, store.ErrBadCursor
		}
		where.add(true, "(s.last, s.id, s.user) < (?, ?, ?)", last, unescaped(id), unescaped(user))
	}
	limit := store.Bound(f.Limit)
	found, last, err := s.sessions(ctx, sessionColumns+byNewestRun+where.text+
		" ORDER BY s.last DESC, s.id DESC, s.user DESC LIMIT ?", append(where.args, limit+1))
	page := store.SessionPage{Sessions: found[:min(len(found), limit)]}
	if len(found) > limit {
		r := found[limit-1]
		page.Next = strconv.FormatInt(last[limit-1], 36) + ":" + escaped(string(r.ID)) + ":" + escaped(r.User)
	}
	return page, err
}

// escaped and unescaped convert a part of a cursor, whose parts are separated by colons.
func escaped(s string) string   { return strings.NewReplacer("%", "%25", ":", "%3a").Replace(s) }
func unescaped(s string) string { return strings.NewReplacer("%25", "%", "%3a", ":").Replace(s) }

// sessions reads sessions and the numbers of their last runs, 0 for sessions without runs.
func (s *Store) sessions(ctx context.Context, query string, args []any) (found []store.SessionInfo, last []int64,
	err error,
) {
	err = reading{s}.Each(ctx, query, args, func(scan Scan) error {
		var r store.SessionInfo
		var num int64
		var raw json.RawMessage
		err := scan(&r.ID, &r.User, &r.Name, &r.CreatedAt, &r.LastRun, &r.Status, &r.UpdatedAt, &num, &r.Runs, &raw)
		var prompt toolcrib.Message
		if json.Unmarshal(raw, &prompt) == nil { // a list does not fail for messages that only a later version can read
			r.Title = store.TitleOf(prompt.Text())
		}
		found, last = append(found, r), append(last, num)
		return err
	})
	return found, last, err
}

// PutMessage implements [store.Inbox].
func (s *Store) PutMessage(ctx context.Context, run toolcrib.RunID, m store.Message) error {
	if run == "" || m.ID == "" {
		return errors.New("store: message: a run ID and an ID are needed")
	}
	if len(m.Text) > store.MaxMessageBytes {
		return fmt.Errorf("a message of %d bytes, at most %d: %w", len(m.Text), store.MaxMessageBytes, store.ErrTooLarge)
	}
	m.At = wholeMicro(m.At)
	m.Text, m.By = text(m.Text), text(m.By)
	return s.write(ctx, &job{barrier: true, bytes: len(m.Text), do: func(t *tx) error { return t.putMessage(run, &m) }})
}

func (t *tx) putMessage(run toolcrib.RunID, m *store.Message) error {
	var ended bool
	var unread int
	err := t.row(`SELECT ended_at IS NOT NULL, (SELECT count(*) FROM inbox WHERE run_id = id) FROM runs WHERE id = ?`,
		[]any{string(run)}, &ended, &unread)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return reject(fmt.Errorf("run %s: %w", run, toolcrib.ErrNotFound))
	case err != nil:
		return err
	case ended:
		return reject(toolcrib.Errorf(toolcrib.CodeConflict, "run %s has ended", run))
	case unread >= store.MaxUnread:
		return reject(store.ErrInboxFull)
	}
	t.w.silent = false
	seal := t.w.keys.SealMessage(run, m)
	err = t.later("INSERT INTO inbox (run_id, message, text, author, at, seal) VALUES (?,?,?,?,?,?)", string(run), m.ID,
		m.Text, m.By, m.At.UnixMicro(), seal[:])
	return err
}

// Messages implements [store.Inbox].
func (s *Store) Messages(ctx context.Context, run toolcrib.RunID) (all []store.Message, err error) {
	err = short{s}.Each(ctx, "SELECT message, text, author, at, seal FROM inbox WHERE run_id = ? ORDER BY num",
		[]any{string(run)}, func(scan Scan) error {
			var m store.Message
			var seal []byte
			if err := scan(&m.ID, &m.Text, &m.By, &m.At, &seal); err != nil {
				return err
			}
			all = append(all, m)
			if !s.keys.SealMessage(run, &m).Equal(seal) {
				return &store.Error{
					Kind: store.ErrCorrupt, Path: s.path, Err: fmt.Errorf("a message to run %s was changed from outside", run),
				}
			}
			return nil
		})
	return all, err
}

// readMessages deletes the messages of a run that rows report as read, and all its messages when it
// ends. Before it writes, it rejects the job if the run ends or asks its model and has messages that
// rows do not account for.
func (t *tx) readMessages(run toolcrib.RunID, rows []row) error {
	var read []string
	asks, end, known := false, false, 0
	for i := range rows {
		switch b := rows[i].event.Body.(type) {
		case *journal.ModelRequest:
			asks = asks || b.Attempt <= 1 && b.Purpose == ""
		case *journal.Said:
			if b.ID != "" {
				read = append(read, b.ID)
			}
		case *journal.Done:
			end, known = true, b.Unread
		case *journal.Error:
			end, known = true, b.Unread
		}
	}
	if asks && !t.w.silent {
		if err := t.row("SELECT NOT EXISTS (SELECT 1 FROM inbox)", nil, &t.w.silent); err != nil {
			return err
		}
	}
	if end || asks && !t.w.silent {
		var unread int
		err := t.row("SELECT count(*) FROM inbox WHERE run_id = ?", []any{string(run)}, &unread)
		switch {
		case err != nil:
			return err
		case unread == 0:
			return nil
		case unread > known+len(read):
			return reject(fmt.Errorf("run %s: %w", run, journal.ErrUnread))
		}
	}
	if end {
		err := t.later("DELETE FROM inbox WHERE run_id = ?", string(run))
		return err
	}
	for _, id := range read {
		if err := t.later("DELETE FROM inbox WHERE run_id = ? AND message = ?", string(run), id); err != nil {
			return err
		}
	}
	return nil
}
