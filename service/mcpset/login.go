package mcpset

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/mcp"
	"github.com/toolcrib/toolcrib/mcp/signin"
	"github.com/toolcrib/toolcrib/service/env"
)

// signInPatience is how long a process waits for another process that refreshes a sign-in, which takes less.
const signInPatience = 30 * time.Second

// SignIn describes a sign-in to an MCP server, without its secrets.
type SignIn struct {
	Server  string    `json:"server"`
	URL     string    `json:"url"`
	Issuer  string    `json:"issuer"`
	Client  string    `json:"client_id"`
	Scopes  []string  `json:"scopes"`
	Expires time.Time `json:"expires_at,omitzero"` // of the token
	Renews  bool      `json:"renews"`              // the token is refreshed by itself
	Revoked bool      `json:"revoked"`
	Problem string    `json:"problem,omitempty"` // why it was not revoked
}

func viewSignIn(server string, c *signin.Credentials) SignIn {
	return SignIn{
		Server: server, URL: c.URL, Issuer: c.Issuer, Client: c.ClientID, Scopes: append([]string{}, c.Scopes...),
		Expires: c.Expires, Renews: c.Refresh != "",
	}
}

// signIns stores the sign-in to one MCP server as a secret.
type signIns struct {
	set  *Set
	name string // of the secret
}

func (s *Set) signIns(server, url string) *signIns {
	return &signIns{s, fmt.Sprintf("%s%.12x", signInOf(server), sha256.Sum256([]byte(url)))}
}

// signInOf returns the prefix of the names of secrets with sign-ins to a server.
func signInOf(server string) string {
	name, _ := mcp.CleanName(server) // which is known to have one
	return env.SignInPrefix + name + "."
}

// Load returns the sign-in, or nil if nobody has signed in.
func (k *signIns) Load() (*signin.Credentials, error) {
	text, err := k.set.env.Secret(k.name)
	if errors.Is(err, toolcrib.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := k.set.env.ReadSignIn(k.name, text)
	if c == nil {
		return nil, fmt.Errorf("the secret %s is not a sign-in; remove it: %s secret remove %s", k.name, k.set.env.Self, k.name)
	}
	return c, nil
}

// Save stores a sign-in.
func (k *signIns) Save(c *signin.Credentials) error {
	text, err := k.write(c)
	if err != nil {
		return err
	}
	kept, err := k.set.env.SecretStore()
	if err != nil {
		return err
	}
	_, err = kept.Set(k.name, text)
	return err
}

// write encodes a sign-in as a secret, and masks its tokens from then on.
func (k *signIns) write(c *signin.Credentials) ([]byte, error) {
	k.set.env.LearnSignIn(k.name, c)
	return json.Marshal(c)
}

// Lock prevents other processes, also on other servers, from refreshing the sign-in.
func (k *signIns) Lock() (unlock func(), err error) { return k.set.env.Lock(k.name, signInPatience) }

// session returns the session of a server that supports sign-ins, or nil.
func (s *Set) session(m *server) *signin.Session {
	if m.canSignIn() != nil {
		return nil
	}
	login := s.env.Self + " mcp login " + trust.ShellWord(m.Name)
	session, err := signin.NewSession(m.URL, login, s.signIns(m.Name, m.URL))
	if err != nil {
		return nil // no token goes to an address that others can read
	}
	return session
}

// canSignIn returns an error if a server does not support sign-ins.
func (m *server) canSignIn() error {
	for name := range m.Headers {
		if strings.EqualFold(name, "Authorization") {
			return toolcrib.Errorf(toolcrib.CodeBadRequest, "MCP server %s has an Authorization header in %s, which is sent "+
				"instead of a sign-in", m.Name, m.from)
		}
	}
	if m.URL == "" {
		return toolcrib.Errorf(toolcrib.CodeBadRequest, "MCP server %s is a program, which signs in by itself; toolcrib "+
			"signs in to servers with url", m.Name)
	}
	return nil
}

// fillOAuth resolves the references in the configuration of a sign-in.
func (s *Set) fillOAuth(c *config.MCPOAuth) (server signin.Server, err error) {
	id, err := c.ClientID.Resolve(s.env.Resolver())
	secret, secretErr := c.ClientSecret.Resolve(s.env.Resolver())
	return signin.Server{
		ClientID: id, ClientSecret: secret, Issuer: c.Issuer, Scopes: c.Scopes, Port: c.CallbackPort,
	}, errors.Join(err, secretErr)
}

// SignInNames returns the names of the MCP servers that support sign-ins. It does not start any.
func (s *Set) SignInNames() []string {
	var names []string
	for _, m := range s.wanted() {
		if m.canSignIn() == nil {
			names = append(names, m.Name)
		}
	}
	return names
}

// Login signs in to an MCP server, for everybody who uses the data folder. Only administrators may.
func (s *Set) Login(
	ctx context.Context, who toolcrib.Principal, name string, person signin.Person,
) (v SignIn, err error) {
	if _, err := env.Administrator(who); err != nil {
		return v, err
	}
	m, err := named(s.wanted(), name)
	if err != nil {
		return v, err
	}
	if m.problem != "" {
		return v, fmt.Errorf("MCP server %s: %s", name, m.problem)
	}
	if err := m.canSignIn(); err != nil {
		return v, err
	}
	server, err := m.oauth()
	if err != nil {
		return v, err
	}
	server.URL = m.URL
	kept := s.signIns(name, m.URL)
	before, err := kept.Load()
	if err != nil {
		return v, err
	}
	c, err := signin.Login(ctx, server, before, person)
	if err != nil {
		return v, fmt.Errorf("MCP server %s: %w", name, err)
	}
	unlock, err := kept.Lock()
	if err != nil {
		return v, err
	}
	defer unlock()
	text, err := kept.write(c)
	if err != nil {
		return v, err
	}
	_, err = s.env.SetSecret(ctx, who, kept.name, text)
	return viewSignIn(name, c), err
}

// Logout removes the sign-ins to an MCP server, which may have left the configuration, and asks their issuers to
// revoke the tokens. They are removed even if an issuer fails.
func (s *Set) Logout(ctx context.Context, who toolcrib.Principal, name string) ([]SignIn, error) {
	if _, err := env.Administrator(who); err != nil {
		return nil, err
	}
	if _, err := mcp.CleanName(name); err != nil {
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "%v", err)
	}
	all, err := s.env.Secrets(who)
	if err != nil {
		return nil, err
	}
	var out []SignIn
	for _, info := range all {
		if !strings.HasPrefix(info.Name, signInOf(name)) {
			continue
		}
		v, err := s.logout(ctx, who, name, &signIns{s, info.Name})
		if err != nil {
			return out, err
		}
		out = append(out, v)
	}
	if len(out) == 0 {
		return nil, toolcrib.Errorf(toolcrib.CodeNotFound, "nobody has signed in to an MCP server %q", name)
	}
	return out, nil
}

func (s *Set) logout(
	ctx context.Context, who toolcrib.Principal, name string, kept *signIns,
) (v SignIn, err error) {
	unlock, err := kept.Lock() // what is refreshed now would be left
	if err != nil {
		return v, err
	}
	defer unlock()
	c, err := kept.Load()
	if err != nil {
		return v, err
	}
	if _, err = s.env.RemoveSecret(ctx, who, kept.name); err != nil || c == nil {
		return v, err
	}
	v = viewSignIn(name, c)
	if v.Revoked, err = c.Revoke(ctx); err != nil {
		v.Problem = s.env.Mask.Mask(err.Error())
	}
	return v, nil
}
