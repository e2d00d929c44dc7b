package access_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
)

const password = "correct horse battery staple"

func TestPassword_HashAndVerify(t *testing.T) {
	h := access.NewHasher(0)
	hash, err := h.Hash(t.Context(), password)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") || strings.Contains(hash, "horse") {
		t.Errorf("hash %s", hash)
	}
	if other, err := h.Hash(t.Context(), password); err != nil || other == hash {
		t.Errorf("twice the same salt: %v", err)
	}
	for text, want := range map[string]bool{
		password: true, password + " ": false, "Correct horse battery staple": false, "": false, "short": false,
		"correct\u00a0horse battery staple": true, // RFC 8265: a space is a space
		strings.Repeat("x", 5000):           false, "nobody has this password": false, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00": false,
	} {
		ok, rehash, err := h.Verify(t.Context(), hash, text)
		if ok != want || rehash || err != nil {
			t.Errorf("%.40q: %v, %v, %v; want %v", text, ok, rehash, err, want)
		}
	}
}

func TestPassword_NobodyHasNone(t *testing.T) {
	h := access.NewHasher(1)
	for _, text := range []string{"", password, "nobody has this password"} {
		if ok, rehash, err := h.Verify(t.Context(), "", text); ok || rehash || err != nil {
			t.Errorf("without a hash, %q: %v, %v, %v", text, ok, rehash, err)
		}
	}
	var zero access.Hasher
	if ok, _, err := zero.Verify(t.Context(), "", password); ok || err == nil {
		t.Errorf("the zero Hasher: %v, %v", ok, err)
	}
}

// The vectors were made by another program, OpenSSL.
func TestPassword_OtherParameters(t *testing.T) {
	h := access.NewHasher(1)
	for hash, want := range map[string]bool{
		"$argon2id$v=19$m=64,t=1,p=1$MDEyMzQ1Njc4OWFiY2RlZg$aq42HBL+IPAitHspChw/8mx5JRX2jFDkTmlsBskwH/0": true,
		"$argon2id$v=19$m=256,t=3,p=2$c2FsdHNhbHQ$02Gm4yDdp3gIjpn07s1j9w":                                true,
		"$argon2id$v=19$m=64,t=1,p=1$MDEyMzQ1Njc4OWFiY2RlZg$2LS1VhkzAzyLnELRI5oFK64ia/7vv5oFSuxdfIsl6i8": false,
	} {
		ok, rehash, err := h.Verify(t.Context(), hash, password)
		if ok != want || rehash != want || err != nil {
			t.Errorf("%s: %v, rehash %v, %v", hash, ok, rehash, err)
		}
	}
}

func TestPassword_BadHashes(t *testing.T) {
	h := access.NewHasher(1)
	const salt, sum = "c2FsdHNhbHRzYWx0c2FsdA", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE"
	for what, hash := range map[string]string{
		"plain":        password,
		"argon2i":      "$argon2i$v=19$m=19456,t=2,p=1$" + salt + "$" + sum,
		"version":      "$argon2id$v=16$m=19456,t=2,p=1$" + salt + "$" + sum,
		"4 TiB":        "$argon2id$v=19$m=4294967295,t=2,p=1$" + salt + "$" + sum,
		"forever":      "$argon2id$v=19$m=19456,t=4294967295,p=1$" + salt + "$" + sum,
		"lanes":        "$argon2id$v=19$m=19456,t=2,p=255$" + salt + "$" + sum,
		"no passes":    "$argon2id$v=19$m=19456,t=0,p=1$" + salt + "$" + sum,
		"no memory":    "$argon2id$v=19$m=0,t=2,p=1$" + salt + "$" + sum,
		"little":       "$argon2id$v=19$m=8,t=2,p=4$" + salt + "$" + sum,
		"order":        "$argon2id$v=19$t=2,m=19456,p=1$" + salt + "$" + sum,
		"no salt":      "$argon2id$v=19$m=19456,t=2,p=1$$" + sum,
		"no sum":       "$argon2id$v=19$m=19456,t=2,p=1$" + salt + "$",
		"short sum":    "$argon2id$v=19$m=19456,t=2,p=1$" + salt + "$MDEy",
		"bad base64":   "$argon2id$v=19$m=19456,t=2,p=1$" + salt + "$" + sum[:42] + "!",
		"more":         "$argon2id$v=19$m=19456,t=2,p=1$" + salt + "$" + sum + "$",
		"large":        "$argon2id$v=19$m=19456,t=2,p=1$" + salt + "$" + strings.Repeat("A", 4096),
		"a space":      " $argon2id$v=19$m=19456,t=2,p=1$" + salt + "$" + sum,
		"other number": "$argon2id$v=19$m=+19456,t=2,p=1$" + salt + "$" + sum,
	} {
		ok, _, err := h.Verify(t.Context(), hash, password)
		if ok {
			t.Errorf("%s: verified", what)
		}
		refused(t, what, err, toolcrib.CodeInternal)
		if err != nil && (strings.Contains(err.Error(), salt) || strings.Contains(err.Error(), "horse")) {
			t.Errorf("%s: the error tells too much: %v", what, err)
		}
	}
}

func TestPassword_Bounds(t *testing.T) {
	for what, text := range map[string]string{
		"empty": "", "14": strings.Repeat("ü", 14), "1025 bytes": strings.Repeat("x", 1025), "control": "correct horse\x00battery", "bad UTF-8": "correct horse\xff battery",
	} {
		_, err := access.NewHasher(1).Hash(t.Context(), text)
		refused(t, what, err, toolcrib.CodeBadRequest)
		if err != nil && strings.Contains(err.Error(), "horse") {
			t.Errorf("%s: the error tells the password", what)
		}
	}
	for _, text := range []string{strings.Repeat("ü", 15), strings.Repeat("x", 1024), password} {
		if _, err := access.NewHasher(1).Hash(t.Context(), text); err != nil {
			t.Errorf("%.20s: %v", text, err)
		}
	}
}

func TestPassword_WaitsForRoom(t *testing.T) {
	h := access.NewHasher(1)
	hash, err := h.Hash(t.Context(), password)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if ok, _, err := h.Verify(ctx, hash, password); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("after the context has ended: %v, %v", ok, err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if ok, _, err := h.Verify(t.Context(), hash, password); !ok || err != nil {
				t.Errorf("%v, %v", ok, err)
			}
		})
	}
	all.Wait()
}
