package people

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service/env"
)

// The ways to sign in.
const (
	ViaPassword = "password"
	ViaToken    = "token"
	ViaOIDC     = "oidc"
	ViaLink     = "link" // sets a password
)

// maxSessions bounds the sessions of a user; a new one ends the one that was not used for the longest time.
const maxSessions = 50

// WebSession is a session of a browser. Its cookie is not stored, only a hash of it.
type WebSession struct {
	ID      string    `json:"id"` // names it for people
	User    string    `json:"user"`
	Via     string    `json:"via"`                // password, token or oidc
	Token   string    `json:"token,omitempty"`    // ID of the access token within whose scope it acts
	SignIn  string    `json:"sign_in,omitempty"`  // ID of the access token by which the user has signed in
	Address string    `json:"address,omitempty"`  // of the client that has signed in
	Agent   string    `json:"agent,omitempty"`    // the browser, by its own account
	Created time.Time `json:"created_at"`         //
	Seen    time.Time `json:"seen_at"`            // a minute later at most
	Expires time.Time `json:"expires_at"`         // its absolute end
	OIDC    *Login    `json:"provider,omitempty"` // if by OIDC

	key      string // hash of the cookie
	password string // tag of the credential at its begin
}

// storedSession is what is stored of a session. Place identifies the database, where it can be told from a restored
// copy, in which the session has ended.
type storedSession struct {
	WebSession
	Password string `json:"password,omitempty"`
	Place    string `json:"place,omitempty"`
}

// Login is what the sign-out at a provider needs.
type Login struct {
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`
	Session string `json:"sid,omitempty"`
	IDToken string `json:"id_token,omitempty"`
}

// Client is the client of a request.
type Client struct {
	Address string // without its port; failures are counted by it
	Agent   string // the header User-Agent
	Device  string // what an earlier [SignedIn.Device] has given the browser, or ""
}

// SignedIn is a new session. Cookie is its only proof, and must reach the browser alone. Device is for the browser to
// keep, for DeviceTTL; "" = nothing. It gives no rights: with it, wrong passwords are counted for this browser alone.
type SignedIn struct {
	WebSession
	Cookie string `json:"-"`
	Device string `json:"-"`
}

// signInEntry is the payload of entries of the audit log about signing in, passwords and sessions.
type signInEntry struct {
	Name    string `json:"name,omitempty"` // of the user
	User    string `json:"user,omitempty"` // likewise
	By      string `json:"by,omitempty"`
	Via     string `json:"via,omitempty"`
	Address string `json:"address,omitempty"`
	Session string `json:"web_session,omitempty"`
	Token   string `json:"by_token,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Issuer  string `json:"issuer,omitempty"`
	Subject string `json:"subject,omitempty"`
	// Omitted is the number of failures before that have no entry, because there were too many.
	Omitted int `json:"omitted,omitempty"`
}

// keyOf returns the hash of a secret by which it is stored.
func keyOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// errSignIn is the error of all failures that must not be told apart.
func errSignIn() error {
	return toolcrib.Errorf(toolcrib.CodeUnauthorized, "the name or the password is wrong")
}

// SignIn begins a session with a user name and a password. The error is unauthorized if they are wrong, and
// rate_limited after too many failures of the user or the address; then [toolcrib.Error.RetryAfter] is set.
func (s *People) SignIn(ctx context.Context, name, password string, from Client) (SignedIn, error) {
	if err := s.env.OpenToRead(ctx); err != nil {
		return SignedIn{}, err
	}
	counters := unknown(name, from.Address)
	if d, ok, err := s.deviceOf(ctx, from.Device, name); err != nil {
		return SignedIn{}, err
	} else if ok {
		counters = append(known(d.ID), browsersOf(d.User))
	}
	c, err := s.checkPassword(ctx, name, password, from.Address, counters)
	if err != nil {
		return SignedIn{}, err
	}
	return s.newSession(ctx, WebSession{User: c.User, Via: ViaPassword, password: c.tag()}, from)
}

// DeviceTTL is how long a browser is known after a sign-in.
const DeviceTTL = 180 * 24 * time.Hour

// device is what a browser keeps in which a user has signed in. It is known until the password changes.
type device struct {
	ID       string    `json:"id"`
	User     string    `json:"user"`
	Until    time.Time `json:"until"`
	Password string    `json:"password,omitempty"` // tag of the credential
}

// devicePurpose is the purpose of the key that encrypts a device.
const devicePurpose = "known browser"

// deviceOf returns the device of a browser in which a user of this name has signed in.
func (s *People) deviceOf(ctx context.Context, sealed, name string) (d device, ok bool, err error) {
	if sealed == "" || len(sealed) > maxDeviceBytes {
		return d, false, nil
	}
	ok, err = s.Unsealed(devicePurpose, sealed, &d)
	same := access.KeysOf(d.User).Folded == access.KeysOf(clipName(name)).Folded
	if err != nil || !ok || !same || !s.Now().Before(d.Until) {
		return d, false, err
	}
	c, err := s.credentialOf(ctx, d.User)
	return d, d.Password == c.tag(), err
}

// maxDeviceBytes bounds what a browser sends as its device.
const maxDeviceBytes = 1024

// newDevice returns what a browser keeps in which a user has just signed in. One that is known stays the same.
func (s *People) newDevice(ctx context.Context, w *WebSession, sealed string) (string, error) {
	d, ok, err := s.deviceOf(ctx, sealed, w.User)
	if err != nil {
		return "", err
	}
	if !ok {
		d.ID = rand.Text()
	}
	d.User, d.Until, d.Password = w.User, s.Now().Add(DeviceTTL), w.password
	return s.Sealed(devicePurpose, d)
}

// checkPassword returns the credential of the user with this name and password. The attempt is counted by counters.
func (s *People) checkPassword(
	ctx context.Context, name, password, from string, counters []counter,
) (c credential, err error) {
	if err := s.count(ctx, counters); err != nil {
		return c, err
	}
	u, known := access.User{}, false
	if access.CheckName(name) == nil {
		u, err = s.env.Store.Access().Alike(ctx, name)
		known = err == nil && strings.EqualFold(u.Name, name) && !u.Removed
		if err != nil && !errors.Is(err, toolcrib.ErrNotFound) {
			return c, err
		}
	}
	stored := clipName(name) // read in any case, which takes the same time
	if known {
		stored = u.Name
	}
	if c, err = s.credentialOf(ctx, stored); err != nil {
		return c, err
	}
	if !known {
		c = credential{}
	}
	ok, err := s.matches(ctx, password, c.Hash)
	why := standing.Inactive(u)
	switch {
	case err != nil:
		return c, err
	case !ok || !known:
		return credential{}, s.failed(ctx, name, ViaPassword, from, "the name or the password is wrong", errSignIn())
	case why != "":
		return credential{}, s.failed(ctx, name, ViaPassword, from, why, toolcrib.Errorf(toolcrib.CodeForbidden, "%s", why))
	}
	return c, s.succeeded(ctx, counters)
}

// failed records a sign-in that failed, and returns err. What is not a name may be a password in the wrong place, and
// is not recorded.
func (s *People) failed(ctx context.Context, name, via, from, reason string, err error) error {
	if access.CheckName(name) != nil {
		name = ""
	}
	s.env.LogLine(slog.LevelWarn, "a sign-in failed", "user", name, "via", via, "address", from, "reason", reason)
	s.state.Lock()
	omitted := s.state.omitted
	if s.state.omitted++; s.state.failures.Allow() {
		s.state.omitted = 0
	}
	record := s.state.omitted == 0
	s.state.Unlock()
	if !record {
		return err
	}
	entry := signInEntry{Name: name, User: name, Via: via, Address: from, Reason: reason, Omitted: omitted}
	if no := s.env.Record(ctx, access.SignInFailed, entry); no != nil {
		return no
	}
	return err
}

// SignInByToken begins a session that acts as the access token does, and ends with it.
func (s *People) SignInByToken(ctx context.Context, token string, from Client) (SignedIn, error) {
	if err := s.env.OpenToRead(ctx); err != nil {
		return SignedIn{}, err
	}
	counters := []counter{byAddress(from.Address)}
	if err := s.count(ctx, counters); err != nil {
		return SignedIn{}, err
	}
	c, err := s.verified(ctx, strings.TrimSpace(token))
	if err == nil {
		var who toolcrib.Principal
		if who, err = s.actOn(ctx, "", c); err == nil {
			if err := s.succeeded(ctx, counters); err != nil {
				return SignedIn{}, err
			}
			w := WebSession{User: who.User, Via: ViaToken, Token: who.Token, SignIn: who.SignIn, Expires: c.Expires.Time()}
			return s.newSession(ctx, w, from)
		}
	}
	var no *toolcrib.Error
	if !errors.As(err, &no) || no.Code == toolcrib.CodeInternal {
		return SignedIn{}, err
	}
	return SignedIn{}, s.failed(ctx, "", ViaToken, from.Address, no.Message, err)
}

// newSession stores a new session, and ends those of the user that are too many.
func (s *People) newSession(ctx context.Context, w WebSession, from Client) (SignedIn, error) {
	now := s.Now()
	in := SignedIn{WebSession: w, Cookie: sessionsOf(w.User) + "." + rand.Text() + rand.Text()}
	in.key = keyOf(in.Cookie)
	in.ID, in.Created, in.Seen = SessionID(in.Cookie), now, now
	if end := now.Add(s.env.Config.Server.Session.Max.Std()); in.Expires.IsZero() || end.Before(in.Expires) {
		in.Expires = end
	}
	in.Address, in.Agent = from.Address, guard.Visible(guard.Clip(from.Agent, access.MaxTextBytes))
	mine, err := s.eachSession(ctx, w.User, func(*WebSession) bool { return true })
	for i := maxSessions - 1; err == nil && i < len(mine); i++ {
		err = s.dropSession(ctx, &mine[i])
	}
	if err == nil && w.Via != ViaPassword {
		var c credential
		c, err = s.credentialOf(ctx, w.User)
		in.password = c.tag()
	}
	if err == nil && w.Via != ViaToken {
		in.Device, err = s.newDevice(ctx, &in.WebSession, from.Device)
	}
	if err != nil {
		return SignedIn{}, err
	}
	entry := signInEntry{
		Name: in.User, User: in.User, By: in.User, Via: in.Via, Address: in.Address, Session: in.ID,
		Token: cmp.Or(in.Token, in.SignIn),
	}
	if in.OIDC != nil {
		entry.Issuer, entry.Subject = in.OIDC.Issuer, in.OIDC.Subject
	}
	if err := s.env.Record(ctx, access.SignedIn, entry); err != nil {
		return SignedIn{}, err
	}
	place, err := s.place(ctx)
	if err != nil {
		return SignedIn{}, err
	}
	return in, s.env.Store.ChangeFile(ctx, in.file(), func([]byte) ([]byte, error) {
		return json.Marshal(storedSession{in.WebSession, in.password, place})
	})
}

// place returns what [storedSession.Place] is.
func (s *People) place(ctx context.Context) (string, error) {
	of, ok := s.env.Store.(interface {
		Identity(ctx context.Context) (string, error)
	})
	s.state.Lock()
	defer s.state.Unlock()
	if ok && s.state.place == "" {
		var err error
		if s.state.place, err = of.Identity(ctx); err != nil {
			return "", err
		}
	}
	return s.state.place, nil
}

// readSession reads a stored session. It returns not_found for one of another database.
func (s *People) readSession(ctx context.Context, data []byte, w *WebSession) error {
	place, err := s.place(ctx)
	stored := storedSession{WebSession: *w}
	if err == nil {
		err = json.Unmarshal(data, &stored)
	}
	*w = stored.WebSession
	if w.password = stored.Password; err == nil && stored.Place != place {
		err = toolcrib.ErrNotFound
	}
	return err
}

// SessionID returns the ID of the session of a cookie, whether there is one or not.
func SessionID(cookie string) string { return "web_" + keyOf(cookie)[:16] }

// sessionsOf returns the name of the folder with the sessions of a user. Cookies begin with it.
func sessionsOf(user string) string { return keyOf(user)[:32] }

// file returns the name of the file of a session. Those of a user are in one folder.
func (w *WebSession) file() string { return env.SessionFolder + "/" + sessionsOf(w.User) + "/" + w.key }

// session returns the stored session of a cookie, or not_found if it does not exist or has ended.
func (s *People) session(ctx context.Context, cookie string) (w WebSession, err error) {
	folder, _, _ := strings.Cut(cookie, ".")
	if sum, no := hex.DecodeString(folder); no != nil || len(sum) != 16 || hex.EncodeToString(sum) != folder {
		return w, toolcrib.ErrNotFound
	}
	w.key = keyOf(cookie)
	data, err := s.env.Store.File(ctx, env.SessionFolder+"/"+folder+"/"+w.key)
	if err == nil {
		err = s.readSession(ctx, data, &w)
	}
	if err == nil && s.over(&w) {
		err = toolcrib.ErrNotFound
	}
	if err != nil {
		return w, err
	}
	// A change of the password removes the sessions that it finds, which may not be all.
	c, err := s.credentialOf(ctx, w.User)
	if err == nil && w.password != c.tag() && w.key != c.Kept {
		err = toolcrib.ErrNotFound
	}
	return w, err
}

// over reports whether a session has reached an end.
func (s *People) over(w *WebSession) bool {
	now := s.Now()
	return !now.Before(w.Expires) || now.Sub(w.Seen) > s.env.Config.Server.Session.Idle.Std()
}

// seenEvery is how old [WebSession.Seen] may be.
const seenEvery = time.Minute

// ActBySession returns the current principal of a session, from the cookie of its browser, and the session. The error
// is unauthorized if it has ended. With used, the request counts as a use of the session, which ends when it is not
// used for long.
func (s *People) ActBySession(
	ctx context.Context, cookie string, used bool,
) (who toolcrib.Principal, w WebSession, err error) {
	if err := s.env.OpenToRead(ctx); err != nil {
		return who, w, err
	}
	w, err = s.session(ctx, cookie)
	if errors.Is(err, toolcrib.ErrNotFound) {
		return who, w, toolcrib.Errorf(toolcrib.CodeUnauthorized, "the session has ended; sign in again")
	}
	if err != nil {
		return who, w, err
	}
	who = toolcrib.Principal{User: w.User, Token: w.Token, SignIn: w.SignIn}
	now, err := s.Standing().Standing(ctx, who)
	if err == nil && now.Refused != "" {
		err = toolcrib.Errorf(toolcrib.CodeUnauthorized, "%s", now.Refused)
	}
	if err != nil {
		return toolcrib.Principal{}, w, err
	}
	if who = now.Principal; w.Token != "" {
		who.Admin, who.Roles = false, nil
	}
	if used && s.Now().Sub(w.Seen) > seenEvery {
		s.touch(ctx, &w)
	}
	return who, w, nil
}

// touch stores that a session is used now. That it could not is no reason to refuse the request.
func (s *People) touch(ctx context.Context, w *WebSession) {
	w.Seen = s.Now()
	err := s.env.Store.ChangeFile(ctx, w.file(), func(before []byte) ([]byte, error) {
		if before == nil { // it has ended meanwhile
			return nil, nil
		}
		var now storedSession
		if err := json.Unmarshal(before, &now); err != nil {
			return nil, err
		}
		now.Seen = w.Seen
		return json.Marshal(now)
	})
	if err != nil {
		s.env.LogLine(slog.LevelWarn, "the use of a session could not be stored", "session", w.ID, "error", err)
	}
}

// eachSession returns the sessions of a user that match, of all users if user is "", those used last first. It removes
// those that have ended.
func (s *People) eachSession(
	ctx context.Context, user string, match func(*WebSession) bool,
) (list []WebSession, err error) {
	folder := env.SessionFolder
	if user != "" {
		folder += "/" + sessionsOf(user)
	}
	files, err := s.env.Store.SomeFiles(ctx, folder, folder)
	for name, data := range files {
		w := WebSession{key: path.Base(name)}
		no := s.readSession(ctx, data, &w)
		switch {
		case no != nil && !errors.Is(no, toolcrib.ErrNotFound):
			return nil, no
		case no != nil, s.over(&w):
			err = errors.Join(err, s.dropFile(ctx, name))
		case match(&w):
			list = append(list, w)
		}
	}
	slices.SortFunc(list, func(a, b WebSession) int { return cmp.Or(b.Seen.Compare(a.Seen), cmp.Compare(a.key, b.key)) })
	return list, err
}

func (s *People) dropSession(ctx context.Context, w *WebSession) error {
	return s.dropFile(ctx, w.file())
}

func (s *People) dropFile(ctx context.Context, name string) error {
	return s.env.Store.ChangeFile(ctx, name, func([]byte) ([]byte, error) { return nil, nil })
}

// endSessions ends the sessions of a user that match.
func (s *People) endSessions(ctx context.Context, user string, match func(*WebSession) bool) error {
	list, err := s.eachSession(ctx, user, match)
	for i := range list {
		err = errors.Join(err, s.dropSession(ctx, &list[i]))
	}
	return err
}

// SignOut ends the session of a cookie, and returns it as it was; the zero value if there was none.
func (s *People) SignOut(ctx context.Context, cookie string) (w WebSession, err error) {
	w, err = s.session(ctx, cookie)
	if errors.Is(err, toolcrib.ErrNotFound) {
		return WebSession{}, nil
	}
	if err == nil {
		err = s.signOut(ctx, &w, w.User, "")
	}
	return w, err
}

func (s *People) signOut(ctx context.Context, w *WebSession, by, reason string) error {
	if err := s.dropSession(ctx, w); err != nil {
		return err
	}
	entry := signInEntry{Name: w.User, User: w.User, By: by, Via: w.Via, Session: w.ID, Reason: reason}
	return s.env.Record(ctx, access.SignedOut, entry)
}

// WebSessions returns one's own sessions, those used last first. For administrators, user names another user, and "*"
// means all. What acts by an access token sees those of the same token.
func (s *People) WebSessions(ctx context.Context, who toolcrib.Principal, user string) ([]WebSession, error) {
	user = cmp.Or(user, who.User)
	if user != who.User {
		if _, err := env.Administrator(who); err != nil {
			return nil, err
		}
	}
	of := user
	if user == "*" {
		of = ""
	}
	list, err := s.eachSession(ctx, of, func(w *WebSession) bool { return who.Token == "" || w.Token == who.Token })
	for i := range list { // the proof for the provider is for nobody else
		if p := list[i].OIDC; p != nil {
			list[i].OIDC = &Login{Issuer: p.Issuer, Subject: p.Subject}
		}
	}
	return list, err
}

// EndWebSession ends a session by its ID: one's own or, for administrators, anybody's. "others" means all of one's own
// except the one with this cookie. It returns how many have ended.
func (s *People) EndWebSession(ctx context.Context, who toolcrib.Principal, id, cookie string) (n int, err error) {
	_, admin := env.Administrator(who)
	mine := func(w *WebSession) bool {
		if who.Token != "" && w.Token != who.Token {
			return false
		}
		return w.ID == id || id == "others" && w.key != keyOf(cookie)
	}
	list, err := s.eachSession(ctx, who.User, mine)
	if err == nil && len(list) == 0 && id != "others" && admin == nil {
		list, err = s.eachSession(ctx, "", func(w *WebSession) bool { return w.ID == id })
	}
	if err == nil && len(list) == 0 && id != "others" {
		err = toolcrib.Errorf(toolcrib.CodeNotFound, "there is no session %+q", guard.Clip(id, access.MaxName))
	}
	for i := 0; err == nil && i < len(list); i++ {
		if err = s.signOut(ctx, &list[i], agent.NameOf(who), "ended from another session"); err == nil {
			n++
		}
	}
	return n, err
}
