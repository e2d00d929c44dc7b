package standing

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

// maxKnown bounds the users, and the tokens, that are cached.
const maxKnown = 1000

// known is a cache of the directory, read at this version or later. If the directory
// changes during a read, it is read once more than necessary, never once less.
type known struct {
	version uint64

	mu     sync.Mutex
	users  map[string]found[access.User]
	tokens map[string]found[*kept]
	groups map[string]found[[]access.Group] // all groups, under the key ""
}

// found is a cached value, or a cached not_found error.
type found[T any] struct {
	value T
	none  error
}

// kept is a token that was issued, and whether it is revoked.
type kept struct {
	issued  access.Issued
	revoked string // why it is revoked; "" if it is not ([access.WhyRevoked])
}

// current returns the cache of the current directory.
func (p *People) current(ctx context.Context) (*known, error) {
	p.mu.Lock()
	age, renewed := p.age, p.renewed
	if p.known == nil || p.looked < renewed {
		age = 0
	}
	p.mu.Unlock()
	version, err := p.source.Version(ctx, age)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// The version may be lower after a copy of the data folder was restored.
	if p.known == nil || p.known.version != version {
		p.known = &known{
			version: version, users: map[string]found[access.User]{}, tokens: map[string]found[*kept]{},
			groups: map[string]found[[]access.Group]{},
		}
	}
	p.looked = max(p.looked, renewed)
	return p.known, nil
}

// Renew makes the next lookup read the version whatever its age, so that a new run
// begins with the current rights.
func (p *People) Renew() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.renewed++
}

// look returns the cached value of a key, or reads and caches it. Of errors, only not_found
// is cached.
func look[T any](k *known, all map[string]found[T], key string, read func() (T, error)) (T, error) {
	k.mu.Lock()
	f, ok := all[key]
	k.mu.Unlock()
	if ok {
		return f.value, f.none
	}
	value, err := read()
	if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
		return value, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(all) >= maxKnown {
		clear(all)
	}
	all[key] = found[T]{value: value, none: err}
	return value, err
}

// user returns the user with a name, or the one whose name looks the same ([access.Users.Alike]).
func (k *known) user(ctx context.Context, source Source, name string) (access.User, error) {
	return look(k, k.users, name, func() (access.User, error) { return source.Alike(ctx, name) })
}

// groupsOf returns all groups, or none if the user has none.
func (k *known) groupsOf(ctx context.Context, source Source, u access.User) ([]access.Group, error) {
	if len(u.Groups) == 0 {
		return nil, nil
	}
	return look(k, k.groups, "", func() ([]access.Group, error) { return source.Groups(ctx) })
}

// token returns a token; one that was not issued is revoked.
func (k *known) token(ctx context.Context, source Source, id string) (*kept, error) {
	one, err := look(k, k.tokens, id, func() (*kept, error) {
		issued, err := source.Token(ctx, id)
		if err != nil {
			return nil, err
		}
		revoked, err := access.WhyRevoked(ctx, source, source, issued.Claims)
		return &kept{issued: issued, revoked: revoked}, err
	})
	if errors.Is(err, toolcrib.ErrNotFound) {
		return &kept{revoked: "the token was not issued here"}, nil
	}
	return one, err
}

// good returns nil if the token is valid for this principal now, and otherwise an error.
func (t *kept) good(user string, now time.Time) error {
	if t.revoked != "" {
		return &toolcrib.Error{Code: toolcrib.CodeTokenRevoked, Message: t.revoked}
	}
	if err := t.issued.Claims.InTime(now); err != nil {
		return err
	}
	if bus := t.issued.Claims.Audience == access.BusAudience; bus || Node(user) {
		if bus != Node(user) {
			return toolcrib.Errorf(toolcrib.CodeUnauthorized, "the token is for another interface")
		}
		return nil // the subject was checked when the call was admitted
	}
	subject, err := t.issued.Claims.ActsFor(user)
	if err == nil && subject != user {
		err = &toolcrib.Error{Code: toolcrib.CodeUnauthorized, Message: "the access token belongs to somebody else"}
	}
	return err
}
