package people

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/access/standing"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/oidc"
)

// byProvider is who makes the changes that a sign-in at a provider leads to.
const byProvider = "sign-in provider"

// checkIdentity returns a conflict if another user has an identity.
func (s *People) checkIdentity(ctx context.Context, name string, id *access.Identity) error {
	if id == nil || *id == (access.Identity{}) {
		return nil
	}
	u, err := s.identified(ctx, *id)
	switch {
	case errors.Is(err, toolcrib.ErrNotFound) || err == nil && u.Name == name:
		return nil
	case err == nil:
		err = toolcrib.Errorf(toolcrib.CodeConflict, "%s is %s at the provider already", u.Name, guard.Visible(id.Subject))
	}
	return err
}

// identified returns the user with an identity.
func (s *People) identified(ctx context.Context, id access.Identity) (access.User, error) {
	for u, err := range s.EachUser(ctx) {
		if err != nil || u.Identity != nil && *u.Identity == id {
			return u, err
		}
	}
	return access.User{}, toolcrib.Errorf(toolcrib.CodeNotFound, "no user has this identity")
}

// SignInByProvider begins a session of the user whom a provider has identified. The user is found by issuer and subject
// alone, and added if the configuration says so. A name that exists is a conflict: nobody gets the account of another
// one because of a name. Groups, roles and administration follow the provider as far as the configuration says so.
func (s *People) SignInByProvider(ctx context.Context, who oidc.Identity, from Client) (SignedIn, error) {
	if err := s.env.OpenToRead(ctx); err != nil {
		return SignedIn{}, err
	}
	u, err := s.userOfProvider(ctx, &who)
	if err == nil {
		if why := standing.Inactive(u); why != "" {
			err = toolcrib.Errorf(toolcrib.CodeForbidden, "%s", why)
		}
	}
	var no *toolcrib.Error
	if errors.As(err, &no) && no.Code != toolcrib.CodeInternal {
		return SignedIn{}, s.failed(ctx, cmp.Or(u.Name, s.nameOf(&who)), ViaOIDC, from.Address, no.Message, err)
	}
	if err != nil {
		return SignedIn{}, err
	}
	in, err := s.newSession(ctx, WebSession{User: u.Name, Via: ViaOIDC, OIDC: &Login{
		Issuer: who.Issuer, Subject: who.Subject, Session: who.Session, IDToken: who.IDToken,
	}}, from)
	if err != nil {
		return SignedIn{}, err
	}
	// A change of the identity ends the sessions that it finds.
	now, err := s.env.Store.Access().User(ctx, u.Name)
	if id := now.Identity; err == nil && (id == nil || id.Issuer != who.Issuer || id.Subject != who.Subject) {
		err = toolcrib.Errorf(toolcrib.CodeForbidden, "%s is another person at the provider now", u.Name)
	}
	if err != nil {
		return SignedIn{}, errors.Join(err, s.dropSession(ctx, &in.WebSession))
	}
	return in, nil
}

// nameOf returns the name that a provider gives a user, or "".
func (s *People) nameOf(who *oidc.Identity) string {
	text := func(claim string) string {
		name, _ := who.Claims[claim].(string)
		// Some providers write the truth as a text.
		if yes := who.Claims["email_verified"]; claim == "email" && yes != true && yes != "true" {
			return ""
		}
		return name
	}
	if claim := s.env.Config.Server.OIDC.UserClaim; claim != "" {
		return text(claim)
	}
	return cmp.Or(text("preferred_username"), text("email"))
}

// userOfProvider returns the user whom a provider has identified, with the present groups and roles.
func (s *People) userOfProvider(ctx context.Context, who *oidc.Identity) (u access.User, err error) {
	o, id := &s.env.Config.Server.OIDC, access.Identity{Issuer: who.Issuer, Subject: who.Subject}
	u, err = s.identified(ctx, id)
	if err == nil {
		return s.followProvider(ctx, u, who)
	}
	if !errors.Is(err, toolcrib.ErrNotFound) {
		return access.User{}, err
	}
	name := s.nameOf(who)
	switch {
	case !o.Create:
		return u, toolcrib.Errorf(toolcrib.CodeForbidden, "nobody here is %s at the provider; an administrator can change that: "+
			"toolcrib users add NAME --subject %s", guard.Visible(guard.Clip(who.Subject, access.MaxTextBytes)),
			guard.Visible(guard.Clip(who.Subject, access.MaxTextBytes)))
	case name == "":
		return u, toolcrib.Errorf(toolcrib.CodeForbidden, "the provider gives this user no name (server.oidc.user_claim)")
	}
	fresh := access.User{Name: name, Identity: &id, Display: shown(who, "name")}
	if who.Claims["email_verified"] == true {
		fresh.Email = shown(who, "email")
	}
	e, err := s.fromProvider(ctx, fresh, who)
	if err == nil {
		fresh, err = e.Apply(fresh)
	}
	if err != nil {
		return u, err
	}
	c, err := s.env.Store.Access().AddUser(ctx, access.NewUser{User: fresh}, byProvider)
	if toolcrib.CodeOf(err) == toolcrib.CodeConflict {
		if u, no := s.identified(ctx, id); no == nil { // at the same time
			return s.followProvider(ctx, u, who)
		}
		err = toolcrib.Errorf(toolcrib.CodeConflict, "%v; an administrator can say that it is the same person: "+
			"toolcrib users edit NAME --subject %s", err, guard.Visible(guard.Clip(who.Subject, access.MaxTextBytes)))
	}
	if err != nil {
		return u, err
	}
	return *c.User, nil
}

// shown returns a claim that people see, or "" if it cannot be shown.
func shown(who *oidc.Identity, claim string) string {
	text, _ := who.Claims[claim].(string)
	if guard.Visible(text) != text || len(text) > access.MaxTextBytes {
		return ""
	}
	return text
}

// followProvider changes a user as the provider says.
func (s *People) followProvider(ctx context.Context, u access.User, who *oidc.Identity) (access.User, error) {
	e, err := s.fromProvider(ctx, u, who)
	if err != nil || e == (access.Edit{}) || standing.Inactive(u) != "" {
		return u, err
	}
	c, err := s.env.Store.Access().EditUser(ctx, u.Name, e, byProvider)
	if err != nil {
		return u, err
	}
	return *c.User, nil
}

// fromProvider returns how groups, roles and administration of a user differ from what the provider says.
func (s *People) fromProvider(ctx context.Context, u access.User, who *oidc.Identity) (e access.Edit, err error) {
	o := &s.env.Config.Server.OIDC
	if o.GroupsClaim == "" {
		return e, nil
	}
	there := texts(who.Claims[o.GroupsClaim]) // a claim that is missing is an empty one
	known, err := s.env.Store.Access().Groups(ctx)
	if err != nil {
		return e, err
	}
	groups, roles := []string{}, []string{}
	for _, g := range known {
		if slices.Contains(there, g.Name) {
			groups = append(groups, g.Name)
		}
	}
	for group, more := range o.Roles {
		if slices.Contains(there, group) {
			roles = append(roles, more...)
		}
	}
	slices.Sort(roles)
	roles = slices.Compact(roles)
	admin := slices.ContainsFunc(o.Admins, func(group string) bool { return slices.Contains(there, group) })
	after := u
	after.Groups = groups
	switch { // losing groups, or having none, must not mean more rights
	case admin:
	case u.Created.IsZero() && len(groups) == 0:
		return e, toolcrib.Errorf(toolcrib.CodeForbidden, "none of your groups at the provider is a group here "+
			"(server.oidc.groups_claim); an administrator can change that: toolcrib users groups set NAME")
	case access.EffectiveGrants(u, known) != nil && access.EffectiveGrants(after, known) == nil:
		return e, toolcrib.Errorf(toolcrib.CodeForbidden, "your groups at the provider have no grants here, while those before "+
			"restricted you; an administrator decides what you may: toolcrib users edit %s --grant …", u.Name)
	}
	if !sameSet(groups, u.Groups) {
		e.Groups = &groups
	}
	if len(o.Roles) > 0 && !sameSet(roles, u.Roles) {
		e.Roles = &roles
	}
	if len(o.Admins) > 0 && admin != u.Admin {
		e.Admin = &admin
	}
	return e, nil
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// texts returns the texts of a claim, which is one or a list; at most 1000.
func texts(value any) (list []string) {
	switch v := value.(type) {
	case string:
		return []string{v}
	case []any:
		for _, one := range v[:min(len(v), 1000)] {
			if text, ok := one.(string); ok {
				list = append(list, text)
			}
		}
	}
	return list
}

// EndByProvider ends sessions that a provider has ended: those of a subject, or the one with this ID there.
func (s *People) EndByProvider(ctx context.Context, issuer, subject, session string) error {
	list, err := s.eachSession(ctx, "", func(w *WebSession) bool {
		return w.OIDC != nil && w.OIDC.Issuer == issuer && (subject == "" || w.OIDC.Subject == subject) &&
			(session == "" || w.OIDC.Session == session) && subject+session != ""
	})
	for i := 0; err == nil && i < len(list); i++ {
		err = s.signOut(ctx, &list[i], byProvider, "ended by the provider")
	}
	return err
}

func (s *People) cookieCipher(purpose string) (cipher.AEAD, error) {
	keys, err := s.env.Keys()
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(keys.Derive(purpose))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Sealed returns a value, encrypted, for a browser to keep. Every server of the database can open it, for the same
// purpose only.
func (s *People) Sealed(purpose string, v any) (string, error) {
	c, err := s.cookieCipher(purpose)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(v)
	return base64.RawURLEncoding.EncodeToString(c.Seal(nil, nil, text, nil)), err
}

// Unsealed is the inverse of Sealed. ok is false for what Sealed has not made for this purpose.
func (s *People) Unsealed(purpose, sealed string, v any) (ok bool, err error) {
	c, err := s.cookieCipher(purpose)
	if err != nil {
		return false, err
	}
	text, err := base64.RawURLEncoding.DecodeString(sealed)
	if err == nil {
		text, err = c.Open(nil, nil, text, nil)
	}
	return err == nil && json.Unmarshal(text, v) == nil, nil
}
