package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/store"
)

// Once returns the key of a request, so that a repeated one gets the same run: it is made of the
// caller, their Idempotency-Key (name) and the request. If name is empty, the key is empty.
func Once(who toolcrib.Principal, name string, asked ...string) string {
	if name == "" {
		return ""
	}
	return hashed(who.User, who.Token, name) + ":" + hashed(asked...)
}

func hashed(texts ...string) string {
	all := sha256.New()
	for _, text := range texts {
		one := sha256.Sum256([]byte(text))
		_, _ = all.Write(one[:]) // a hash never fails to write
	}
	return hex.EncodeToString(all.Sum(nil)[:16])
}

// begun returns the run that was started with a key, or "".
func (s *Service) begun(ctx context.Context, once string) (toolcrib.RunID, error) {
	if once == "" {
		return "", nil
	}
	key := once[:hex.EncodedLen(16)]
	page, err := s.store.Runs(ctx, store.Filter{Once: key, Since: time.Now().Add(-store.OnceAge), Limit: 1})
	if err != nil || len(page.Runs) == 0 {
		return "", err
	}
	rec := &page.Runs[0]
	return sameOnce(&store.OnceError{Run: rec.ID, Same: rec.Once == once})
}

// sameOnce returns the run of a key, or a conflict if the key belongs to another request.
func sameOnce(other *store.OnceError) (toolcrib.RunID, error) {
	if !other.Same {
		return "", toolcrib.Errorf(toolcrib.CodeConflict, "this Idempotency-Key was used with another request")
	}
	return other.Run, nil
}

// maxAsked bounds the runs among which one is looked for.
const maxAsked = 200

// Asked returns the newest run of who that began with a key for the same request, whatever its
// name, that neither has ended before since nor waits since before; "" if none.
func (s *Service) Asked(ctx context.Context, who toolcrib.Principal, once string, since time.Time) (toolcrib.RunID,
	error,
) {
	f, ok := seen(who, store.Filter{User: who.User, TopLevel: true, Limit: maxAsked})
	if !ok {
		return "", nil
	}
	page, err := s.store.Runs(ctx, f)
	_, same, _ := strings.Cut(once, ":")
	for _, rec := range page.Runs {
		last := rec.EndedAt
		if last.IsZero() {
			last = rec.WaitsSince
		}
		if strings.HasSuffix(rec.Once, ":"+same) && (last.IsZero() || last.After(since)) {
			return rec.ID, err
		}
	}
	return "", err
}
