package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/toolcrib/toolcrib/store"
)

// Damage that was found is written down beside the database, a line for each place, because
// a damaged database may not take it. As long as a line stands there that nobody has
// accepted, no new run is started, by any process. Where nothing more is found, the
// file is removed.

const (
	damageEnd   = "-damage"
	maxDamage   = 64 << 10 // bytes of the file
	acceptedTag = "accepted "
)

// damaged are the lines of the file of damage, without its end; nil = none.
func damaged(path string) []string {
	text, err := os.ReadFile(path + damageEnd)
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// damageLine is the line of a problem in the file: where it is, and what it is.
func damageLine(err error) (place, line string) {
	var broken *store.ChainError
	place = "database 0"
	if errors.As(err, &broken) {
		place = strconv.Quote(string(broken.Run)) + " " + strconv.FormatUint(uint64(broken.Seq), 10)
	}
	return place, place + "\t" + strings.ReplaceAll(err.Error(), "\n", " ")
}

// noteDamage writes down what was found, once for each place, if err reports damage and
// the store can be written. It returns err.
func (s *Store) noteDamage(err error) error {
	if err == nil || s.writer == nil {
		return err
	}
	var broken *store.ChainError
	if !errors.As(err, &broken) && !errors.Is(err, store.ErrCorrupt) {
		return err
	}
	noteDamage(s.path, err)
	return err
}

func noteDamage(path string, err error) {
	place, line := damageLine(err)
	size := 0
	for _, known := range damaged(path) {
		if size += len(known) + 1; strings.HasPrefix(strings.TrimPrefix(known, acceptedTag), place+"\t") {
			return
		}
	}
	if size+len(line) > maxDamage {
		return // what stands there is enough
	}
	f, err := os.OpenFile(path+damageEnd, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return // the error itself is reported anyway
	}
	_, _ = f.WriteString(line + "\n")
	_ = f.Close()
}

// checkDamage returns store.ErrDamaged if damage was found that nobody has accepted.
func checkDamage(path string) error {
	for _, line := range damaged(path) {
		if !strings.HasPrefix(line, acceptedTag) {
			_, what, _ := strings.Cut(line, "\t")
			return &store.Error{Kind: store.ErrDamaged, Path: path, Err: errors.New(what)}
		}
	}
	return nil
}

// Damage implements [store.Store].
func (s *Store) Damage() error { return checkDamage(s.path) }

// clearDamage forgets what was found, after everything was verified.
func (s *Store) clearDamage(ctx context.Context) error {
	if damaged(s.path) == nil {
		return nil
	}
	if err := s.integrity(ctx); err != nil {
		return err
	}
	err := os.Remove(s.path + damageEnd)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return mapped(s.path, err)
}

// checkNew returns store.ErrDamaged where no new run may be started. A copy may have been
// restored since the damage was found, so everything is verified before that is said.
func (s *Store) checkNew(ctx context.Context) error {
	found := s.Damage()
	if found == nil {
		return nil
	}
	if _, err := s.VerifyAll(ctx); err == nil || ctx.Err() != nil {
		return err
	}
	return found
}

// AcceptDamage implements [store.Store].
func (s *Store) AcceptDamage(ctx context.Context, by string) (store.VerifiedAll, error) {
	if by == "" {
		return store.VerifiedAll{}, errors.New("sqlite: accept damage: the actor is missing")
	}
	all, err := s.VerifyAll(ctx)
	if err == nil || len(all.Problems) == 0 || all.More {
		return all, err
	}
	raw, err := store.EncodeJSON(store.DamageAccepted{By: by, Problems: all.Problems})
	if err != nil {
		return all, err
	}
	if err := s.AppendSystem(ctx, store.SystemEvent{Kind: store.SystemDamageAccepted, Payload: raw}); err != nil {
		return all, err
	}
	var text bytes.Buffer
	for _, p := range all.Problems {
		_, line := damageLine(p)
		fmt.Fprintf(&text, "%s%s\n", acceptedTag, line)
	}
	return all, mapped(s.path, os.WriteFile(s.path+damageEnd, text.Bytes(), 0o600))
}
