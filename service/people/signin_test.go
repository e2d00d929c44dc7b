package people_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/service"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/service/people"
	"github.com/toolcrib/toolcrib/store"
)

const password = "correct horse battery"

var root = toolcrib.Principal{User: "local:test", Admin: true}

// opened returns the people of a data folder with these users, whose password is password.
func opened(t *testing.T, dir string, users ...string) *people.People {
	t.Helper()
	s := service.New(env.Options{DataDir: filepath.Join(dir, "data")})
	if err := s.Env.OpenFor(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for _, name := range users {
		if _, err := s.People.AddUser(t.Context(), root, access.NewUser{User: access.User{Name: name}}); err != nil {
			t.Fatal(err)
		}
		if err := s.People.SetPassword(t.Context(), root, name, password); err != nil {
			t.Fatal(err)
		}
	}
	return s.People
}

func codeOf(_ any, err error) toolcrib.Code { return toolcrib.CodeOf(err) }

func at(address string) people.Client { return people.Client{Address: address} }

// Passwords are checked for what people type: composed characters are the same however a keyboard makes them.
func TestCheckPassword(t *testing.T) {
	for password, ok := range map[string]bool{
		"": false, "short": false, "elevenchars": false, "twelve chars": true, strings.Repeat("a", 40): false,
		"anna-anna-anna"[:0] + "annaannaannaanna": false, strings.Repeat("ab ", 300): true, strings.Repeat("ab ", 400): false,
		"twelve\nlines": false, "\xff\xfe twelve chars": false, "ééééééééééé1": true, strings.Repeat("x", 1<<20): false,
	} {
		if err := people.CheckPassword("anna", password); (err == nil) != ok {
			t.Errorf("%.40q: %v", password, err)
		} else if err != nil && len(password) > 3 && strings.Contains(err.Error(), password) {
			t.Errorf("the error repeats the password: %v", err)
		}
	}
}

func TestSignIn(t *testing.T) {
	p := opened(t, t.TempDir(), "anna")
	ctx := t.Context()
	in, err := p.SignIn(ctx, "Anna", password, at("192.0.2.1"))
	if err != nil || in.User != "anna" {
		t.Fatalf("%+v, %v", in, err)
	}
	who, _, err := p.ActBySession(ctx, in.Cookie, true)
	if err != nil || who.User != "anna" {
		t.Errorf("%+v, %v", who, err)
	}
	for name, password := range map[string]string{"anna": "wrong", "nobody-here": password, "": "", "ann\x1ba": password, strings.Repeat("n", 1<<20): strings.Repeat("p", 1<<20)} {
		_, err := p.SignIn(ctx, name, password, at("192.0.2.2"))
		if toolcrib.CodeOf(err) != toolcrib.CodeUnauthorized || err.Error() != "the name or the password is wrong" {
			t.Errorf("%.20q: %v", name, err)
		}
	}
	page, err := p.Audit(ctx, root, store.AuditFilter{Kinds: []toolcrib.Kind{access.SignInFailed, access.SignedIn}}, "")
	if err != nil || len(page.Entries) != 6 {
		t.Fatalf("%d entries, %v", len(page.Entries), err)
	}
	for _, e := range page.Entries {
		if strings.Contains(string(e.Payload), password) || strings.Contains(string(e.Payload), in.Cookie) {
			t.Errorf("%s", e.Payload)
		}
	}
}

// After some failures a user must wait, whoever asks and on whichever server, and so must an address; others need not.
func TestSignIn_LockedOut(t *testing.T) {
	dir := t.TempDir()
	one := opened(t, dir, "anna", "bob")
	two := opened(t, dir)
	ctx := t.Context()
	var checked, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			p := one
			if i%2 == 0 {
				p = two
			}
			_, err := p.SignIn(ctx, "anna", "a wrong password", at("192.0.2."+string(rune('1'+i%9))))
			switch toolcrib.CodeOf(err) {
			case toolcrib.CodeUnauthorized:
				checked.Add(1)
			case toolcrib.CodeRateLimited:
				refused.Add(1)
				var e *toolcrib.Error
				if !errors.As(err, &e) || e.RetryAfter <= 0 {
					t.Error(err)
				}
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := checked.Load(); n < 5 || n > 8 { // a wait of a second may pass
		t.Errorf("%d passwords of %d were checked", n, n+refused.Load())
	}
	if _, err := two.SignIn(ctx, "bob", password, at("192.0.2.100")); err != nil {
		t.Error(err)
	}
	for i := range 40 {
		_, _ = one.SignIn(ctx, "user"+string(rune('a'+i%26))+string(rune('a'+i/26)), "a wrong password", at("198.51.100.1"))
	}
	if _, err := two.SignIn(ctx, "bob", password, at("198.51.100.1")); toolcrib.CodeOf(err) != toolcrib.CodeRateLimited {
		t.Errorf("an address: %v", err)
	}
	if _, err := two.SignIn(ctx, "bob", password, at("192.0.2.101")); err != nil {
		t.Error(err)
	}
}

// A link sets a password once, ends the sessions, and is not stored.
func TestPasswordLink(t *testing.T) {
	dir := t.TempDir()
	p := opened(t, dir, "anna")
	ctx := t.Context()
	in, err := p.SignIn(ctx, "anna", password, at("192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	first, err := p.PasswordLink(ctx, root, "anna")
	if err != nil {
		t.Fatal(err)
	}
	l, err := p.PasswordLink(ctx, root, "anna")
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimPrefix(l.Link, people.LinkPath)
	const other = "another good password"
	if code := codeOf(p.UseLink(ctx, strings.TrimPrefix(first.Link, people.LinkPath), other, "192.0.2.1")); code != toolcrib.CodeUnauthorized {
		t.Errorf("the first link: %v", code)
	}
	if code := codeOf(p.UseLink(ctx, token, "short", "192.0.2.1")); code != toolcrib.CodeBadRequest {
		t.Errorf("a short password: %v", code)
	}
	if user, err := p.LinkUser(ctx, token, "192.0.2.1"); err != nil || user != "anna" {
		t.Errorf("%s, %v", user, err)
	}
	var used atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := p.UseLink(ctx, token, other, "192.0.2.1"); err == nil {
				used.Add(1)
			}
		})
	}
	all.Wait()
	if used.Load() != 1 {
		t.Errorf("the link was used %d times", used.Load())
	}
	if _, _, err := p.ActBySession(ctx, in.Cookie, true); toolcrib.CodeOf(err) != toolcrib.CodeUnauthorized {
		t.Errorf("the old session: %v", err)
	}
	if code := codeOf(p.SignIn(ctx, "anna", password, at("192.0.2.1"))); code != toolcrib.CodeUnauthorized {
		t.Errorf("the old password: %v", code)
	}
	if _, err := p.SignIn(ctx, "anna", other, at("192.0.2.1")); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{"", ".", "x", "YW5uYQ.", "YW5uYQ.AAAA", "!!!." + token, strings.Repeat("YW5u", 1<<18) + ".x"} {
		if _, err := p.UseLink(ctx, wrong, other, "192.0.2.9"); toolcrib.CodeOf(err) != toolcrib.CodeUnauthorized {
			t.Errorf("%.30q: %v", wrong, err)
		}
	}
}

// The next user of a name does not have the password of the last one.
func TestPassword_RemovedUser(t *testing.T) {
	p := opened(t, t.TempDir(), "anna")
	ctx := t.Context()
	if _, err := p.RemoveUser(ctx, root, "anna"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.AddUser(ctx, root, access.NewUser{User: access.User{Name: "anna"}, Reuse: true}); err != nil {
		t.Fatal(err)
	}
	if code := codeOf(p.SignIn(ctx, "anna", password, at("192.0.2.1"))); code != toolcrib.CodeUnauthorized {
		t.Error(code)
	}
}

// Passwords that many send at once do not take more memory than a bound.
func TestSignIn_Crowd(t *testing.T) {
	p := opened(t, t.TempDir(), "anna")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	var failed atomic.Int64
	for range 20 {
		all.Go(func() {
			if _, err := p.SignIn(ctx, "anna", password, at("192.0.2.1")); err != nil && toolcrib.CodeOf(err) != toolcrib.CodeRateLimited {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d failed", failed.Load())
	}
}
