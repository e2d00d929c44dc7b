package people_test

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
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
	return openedService(t, dir, users...).People
}

func openedService(t *testing.T, dir string, users ...string) *service.Service {
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
	return s
}

func codeOf(_ any, err error) toolcrib.Code { return toolcrib.CodeOf(err) }

// stopped stops the clocks of people, and returns a function that sets them forward.
func stopped(all ...*people.People) func(time.Duration) {
	var mu sync.Mutex
	now := time.Now()
	for _, p := range all {
		p.SetNow(func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		})
	}
	return func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
	}
}

func sessionCode(_, _ any, err error) toolcrib.Code { return toolcrib.CodeOf(err) }

func at(address string) people.Client { return people.Client{Address: address} }

// Passwords are checked for what people type: composed characters are the same however a keyboard makes them.
func TestCheckPassword(t *testing.T) {
	for password, ok := range map[string]bool{
		"": false, "short": false, "elevenchars": false, "twelve chars": true, strings.Repeat("a", 40): false,
		"anna-anna-anna"[:0] + "annaannaannaanna": false, strings.Repeat("ab ", 300): true, strings.Repeat("ab ", 400): false,
		"twelve\nlines": false, "\xff\xfe twelve chars": false, "ééééééééééé1": true, strings.Repeat("x", 1<<20): false,
		"\ufdfa": false, strings.Repeat("\ufdfa ", 6): true, // each is 18 characters in the normal form
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

// After some failures with a name from an address that address must wait, on whichever server, and so must an address
// that tries many names. Others need not: nobody can keep the user out.
func TestSignIn_LockedOut(t *testing.T) {
	dir := t.TempDir()
	one := opened(t, dir, "anna", "bob")
	two := opened(t, dir)
	stopped(one, two)
	ctx := t.Context()
	var checked, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			p := one
			if i%2 == 0 {
				p = two
			}
			_, err := p.SignIn(ctx, "anna", "a wrong password", at("192.0.2.1"))
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
	if n := checked.Load(); n != 5 {
		t.Errorf("%d passwords of %d were checked", n, n+refused.Load())
	}
	for name, from := range map[string]string{"anna": "192.0.2.2", "bob": "192.0.2.1"} {
		if _, err := two.SignIn(ctx, name, password, at(from)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
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

// A browser in which the user has signed in before is counted by itself, whoever guesses beside it, and only for this
// user.
func TestSignIn_KnownBrowser(t *testing.T) {
	p := opened(t, t.TempDir(), "anna", "bob")
	forward := stopped(p)
	ctx := t.Context()
	in, err := p.SignIn(ctx, "anna", password, at("192.0.2.1"))
	if err != nil || in.Device == "" {
		t.Fatalf("%+v, %v", in, err)
	}
	bob, err := p.SignIn(ctx, "bob", password, at("192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		_, _ = p.SignIn(ctx, "anna", "a wrong password", at("192.0.2.1"))
	}
	at := func(device string) people.Client { return people.Client{Address: "192.0.2.1", Device: device} }
	for name, device := range map[string]string{
		"no device": "", "another user": bob.Device, "garbage": "garbage", "cut": in.Device[1:],
		"very long": strings.Repeat("x", 1<<20), "cookie of the session": in.Cookie,
	} {
		if code := codeOf(p.SignIn(ctx, "anna", password, at(device))); code != toolcrib.CodeRateLimited {
			t.Errorf("%s: %v", name, code)
		}
	}
	again, err := p.SignIn(ctx, "Anna", password, at(in.Device))
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		_, _ = p.SignIn(ctx, "anna", "a wrong password", at(again.Device))
	}
	if code := codeOf(p.SignIn(ctx, "anna", password, at(in.Device))); code != toolcrib.CodeRateLimited {
		t.Errorf("guesses from the browser: %v", code)
	}
	elsewhere := people.Client{Address: "192.0.2.2"}
	if _, err := p.SignIn(ctx, "anna", password, elsewhere); err != nil {
		t.Error(err)
	}
	forward(people.DeviceTTL - time.Hour)
	if _, err := p.SignIn(ctx, "anna", password, at(in.Device)); err != nil {
		t.Error(err)
	}
	if code := sessionCode(p.ActBySession(ctx, in.Device, true)); code != toolcrib.CodeUnauthorized {
		t.Errorf("a device as a session: %v", code)
	}
}

// A browser is known only as long as the password under which it has signed in, and all of a user count together.
func TestSignIn_KnownBrowserOldPassword(t *testing.T) {
	p := opened(t, t.TempDir(), "anna")
	stopped(p)
	ctx, other := t.Context(), "another good password"
	old, err := p.SignIn(ctx, "anna", password, at("192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.SetPassword(ctx, root, "anna", other); err != nil {
		t.Fatal(err)
	}
	fresh, err := p.SignIn(ctx, "anna", other, people.Client{Address: "192.0.2.2", Device: old.Device})
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		_, _ = p.SignIn(ctx, "anna", "a wrong password", at("192.0.2.1"))
	}
	for device, want := range map[string]toolcrib.Code{old.Device: toolcrib.CodeRateLimited, fresh.Device: ""} {
		if code := codeOf(p.SignIn(ctx, "anna", other, people.Client{Address: "192.0.2.1", Device: device})); code != want {
			t.Errorf("%q, want %q", code, want)
		}
	}
	if err := p.BrowsersFailed(ctx, "anna", 1000, 61*time.Second); err != nil {
		t.Fatal(err)
	}
	code := codeOf(p.SignIn(ctx, "anna", other, people.Client{Address: "192.0.2.1", Device: fresh.Device}))
	if code != toolcrib.CodeRateLimited {
		t.Errorf("after many failures from known browsers: %q", code)
	}
}

// An attempt that is refused because too many wait does not count.
func TestSignIn_TooManyWait(t *testing.T) {
	p := opened(t, t.TempDir(), "anna")
	stopped(p)
	ctx := t.Context()
	if err := p.Failed(ctx, "anna", 100, time.Second); err != nil {
		t.Fatal(err)
	}
	end := p.Crowd()
	for range 6 {
		if code := codeOf(p.SignIn(ctx, "anna", password, at("192.0.2.1"))); code != toolcrib.CodeRateLimited {
			t.Errorf("%q", code)
		}
	}
	end()
	if _, err := p.SignIn(ctx, "anna", password, at("192.0.2.1")); err != nil {
		t.Error(err)
	}
}

// A sign-in that succeeds does not end the wait after a failure at the same time.
func TestSignIn_FailureMeanwhile(t *testing.T) {
	p := opened(t, t.TempDir())
	forward := stopped(p)
	ctx := t.Context()
	if err := p.AddressFailed(ctx, "192.0.2.1", 30); err != nil {
		t.Fatal(err)
	}
	succeeded, err := p.Attempt(ctx, "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	forward(3 * time.Second)
	if _, err := p.Attempt(ctx, "192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	if err := succeeded(); err != nil {
		t.Fatal(err)
	}
	if code := codeOf(p.Attempt(ctx, "192.0.2.1")); code != toolcrib.CodeRateLimited {
		t.Errorf("%q", code)
	}
}

// A change of the password ends sessions that it does not find, such as those of another version, and not its own.
func TestChangePassword_SessionNotFound(t *testing.T) {
	s := openedService(t, t.TempDir(), "anna")
	p, ctx := s.People, t.Context()
	lost, err := p.SignIn(ctx, "anna", password, at("192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := s.Env.Store.SomeFiles(ctx, env.SessionFolder, env.SessionFolder)
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	own, err := p.SignIn(ctx, "anna", password, at("192.0.2.1"))
	if err != nil {
		t.Fatal(err)
	}
	who := toolcrib.Principal{User: "anna"}
	if err := p.ChangePassword(ctx, who, "192.0.2.1", password, "another good password", own.Cookie); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		err := s.Env.Store.ChangeFile(ctx, name, func([]byte) ([]byte, error) { return data, nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	for cookie, want := range map[string]toolcrib.Code{lost.Cookie: toolcrib.CodeUnauthorized, own.Cookie: ""} {
		if code := sessionCode(p.ActBySession(ctx, cookie, true)); code != want {
			t.Errorf("%q, want %q", code, want)
		}
	}
}

// The answer about a name that does not exist, and about a user without a password, is that about a wrong password, and
// takes as long: a password is hashed in each case.
func TestSignIn_UnknownName(t *testing.T) {
	p := opened(t, t.TempDir(), "anna")
	ctx := t.Context()
	if _, err := p.AddUser(ctx, root, access.NewUser{User: access.User{Name: "carl"}}); err != nil {
		t.Fatal(err)
	}
	names := []string{"anna", "nobody", "carl", "no name\x1b"}
	least := map[string]time.Duration{}
	for i := range 4 * len(names) {
		name, began := names[i%len(names)], time.Now()
		_, err := p.SignIn(ctx, name, "a wrong password", at("192.0.2."+strconv.Itoa(i)))
		took := time.Since(began)
		if toolcrib.CodeOf(err) != toolcrib.CodeUnauthorized || err.Error() != "the name or the password is wrong" {
			t.Errorf("%q: %v", name, err)
		}
		if least[name] == 0 || took < least[name] {
			least[name] = took
		}
	}
	for name, took := range least {
		if took < least["anna"]/4 || took > 4*least["anna"] {
			t.Errorf("%q: %v, and with a password %v", name, took, least["anna"])
		}
	}
	stopped(p)
	for _, name := range names {
		for range 5 {
			_, _ = p.SignIn(ctx, name, "a wrong password", at("192.0.2.200"))
		}
		if code := codeOf(p.SignIn(ctx, name, "a wrong password", at("192.0.2.200"))); code != toolcrib.CodeRateLimited {
			t.Errorf("%q: %v", name, code)
		}
	}
}

// Guesses from very many addresses are delayed: so few are checked that they are hopeless, and the user still gets in
// from a new browser, a little later. It is the same for a name that does not exist.
func TestSignIn_ManyAddresses(t *testing.T) {
	for failed, most := range map[int]int{0: 3000, 200: 2881} {
		if n := people.GuessesADay(failed); n > most || n < 2800 {
			t.Errorf("after %d failures: %d guesses a day", failed, n)
		}
	}
	p := opened(t, t.TempDir(), "anna")
	stopped(p)
	ctx := t.Context()
	for name, want := range map[string]toolcrib.Code{"anna": "", "nobody": toolcrib.CodeUnauthorized} {
		if err := p.Failed(ctx, name, 100, time.Second); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err := p.SignIn(ctx, name, password, at("192.0.2.1"))
		if took := time.Since(began); toolcrib.CodeOf(err) != want || took < time.Second {
			t.Errorf("%s: %v after %v", name, err, took)
		}
		if err := p.Failed(ctx, name, 1000, 61*time.Second); err != nil {
			t.Fatal(err)
		}
		var e *toolcrib.Error
		_, err = p.SignIn(ctx, name, password, at("192.0.2.1"))
		if !errors.As(err, &e) || e.Code != toolcrib.CodeRateLimited || e.RetryAfter != 31*time.Second {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A user has a bounded number of sessions, of which the one that was used last stays, and a sign-in reads no others.
func TestSignIn_Sessions(t *testing.T) {
	s := openedService(t, t.TempDir(), "anna", "bob")
	p, ctx := s.People, t.Context()
	token, err := p.CreateToken(ctx, root, people.TokenRequest{User: "anna", Scope: access.Scope{SignIn: true}, Via: "cli"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.SignIn(ctx, "bob", password, at("192.0.2.1")); err != nil {
		t.Fatal(err)
	}
	files, err := s.Env.Store.SomeFiles(ctx, env.SessionFolder, env.SessionFolder)
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for name := range files {
		broken := func([]byte) ([]byte, error) { return []byte("broken"), nil }
		if err := s.Env.Store.ChangeFile(ctx, name, broken); err != nil {
			t.Fatal(err)
		}
	}
	var first, last people.SignedIn
	for i := range 52 {
		last, err = p.SignInByToken(ctx, token.Token, at("192.0.2.1"))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = last
		}
	}
	list, err := p.WebSessions(ctx, toolcrib.Principal{User: "anna"}, "")
	if err != nil || len(list) != 50 {
		t.Errorf("%d sessions, %v", len(list), err)
	}
	if code := sessionCode(p.ActBySession(ctx, first.Cookie, true)); code != toolcrib.CodeUnauthorized {
		t.Errorf("the oldest: %v", code)
	}
	if _, _, err := p.ActBySession(ctx, last.Cookie, true); err != nil {
		t.Error(err)
	}
	if _, err := p.WebSessions(ctx, root, "*"); err == nil {
		t.Error("a broken session is not noticed")
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
