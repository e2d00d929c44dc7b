package service

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/safefile"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/mcp"
	"github.com/toolcrib/toolcrib/mcp/signin"
	"github.com/toolcrib/toolcrib/service/env"
)

// signInPatience is how long a process waits for another one that refreshes a sign-in. It is
// longer than a refresh takes.
const signInPatience = 30 * time.Second

// MCPSignIn is a sign-in to an MCP server, without what is secret in it.
type MCPSignIn struct {
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

func viewSignIn(server string, c *signin.Credentials) MCPSignIn {
	return MCPSignIn{
		Server: server, URL: c.URL, Issuer: c.Issuer, Client: c.ClientID, Scopes: append([]string{}, c.Scopes...),
		Expires: c.Expires, Renews: c.Refresh != "",
	}
}

// signIns are the sign-ins to one MCP server, in the store of secrets.
type signIns struct {
	service *Service
	name    string // of the secret
}

func (s *Service) signIns(server, url string) *signIns {
	return &signIns{s, fmt.Sprintf("%s%.12x", signInOf(server), sha256.Sum256([]byte(url)))}
}

// signInOf begins the names of the secrets that are sign-ins to a server.
func signInOf(server string) string {
	name, _ := mcp.CleanName(server) // which is known to have one
	return env.SignInPrefix + name + "."
}

// Load returns the sign-in; nil if nobody has signed in.
func (k *signIns) Load() (*signin.Credentials, error) {
	text, err := k.service.Env.Secret(k.name)
	if errors.Is(err, toolcrib.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := k.service.Env.ReadSignIn(k.name, text)
	if c == nil {
		return nil, fmt.Errorf("the secret %s is not a sign-in; remove it: %s secret remove %s", k.name, k.service.Env.Self, k.name)
	}
	return c, nil
}

// Save keeps a sign-in.
func (k *signIns) Save(c *signin.Credentials) error {
	text, err := k.write(c)
	if err != nil {
		return err
	}
	kept, err := k.service.Env.SecretStore()
	if err != nil {
		return err
	}
	_, err = kept.Set(k.name, text)
	return err
}

// write makes a sign-in a secret, which is masked from then on.
func (k *signIns) write(c *signin.Credentials) ([]byte, error) {
	k.service.Env.LearnSignIn(k.name, c)
	return json.Marshal(c)
}

// Lock keeps other processes from refreshing the sign-in.
func (k *signIns) Lock() (unlock func(), err error) {
	return safefile.Lock(filepath.Join(k.service.Env.DataDir, k.name+".lock"), signInPatience)
}

// mcpSession returns the session of a server that one can sign in to; nil for any other.
func (s *Service) mcpSession(m *mcpServer) *signin.Session {
	if m.canSignIn() != nil {
		return nil
	}
	login := s.Env.Self + " mcp login " + trust.ShellWord(m.Name)
	session, err := signin.NewSession(m.URL, login, s.signIns(m.Name, m.URL))
	if err != nil {
		return nil // no token goes to an address that others can read
	}
	return session
}

// canSignIn returns an error if no person can sign in to a server.
func (m *mcpServer) canSignIn() error {
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

// fillOAuth fills in the references of what the configuration says about signing in.
func (s *Service) fillOAuth(c *config.MCPOAuth) (server signin.Server, err error) {
	id, err := c.ClientID.Resolve(s.Env.Resolver())
	secret, secretErr := c.ClientSecret.Resolve(s.Env.Resolver())
	return signin.Server{
		ClientID: id, ClientSecret: secret, Issuer: c.Issuer, Scopes: c.Scopes, Port: c.CallbackPort,
	}, errors.Join(err, secretErr)
}

// MCPSignInNames are the names of the MCP servers that one can sign in to, without starting
// any.
func (s *Service) MCPSignInNames() []string {
	var names []string
	for _, m := range s.wantedMCP() {
		if m.canSignIn() == nil {
			names = append(names, m.Name)
		}
	}
	return names
}

// LoginMCP signs an administrator in to an MCP server, for all who use the data folder.
func (s *Service) LoginMCP(
	ctx context.Context, who toolcrib.Principal, name string, person signin.Person,
) (v MCPSignIn, err error) {
	if _, err := env.Administrator(who); err != nil {
		return v, err
	}
	m, err := mcpNamed(s.wantedMCP(), name)
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
	_, err = s.Env.SetSecret(ctx, who, kept.name, text)
	return viewSignIn(name, c), err
}

// LogoutMCP removes the sign-ins to an MCP server, which need not be configured, and has
// their issuers revoke the tokens. If an issuer does not, the sign-in is removed anyway.
func (s *Service) LogoutMCP(ctx context.Context, who toolcrib.Principal, name string) ([]MCPSignIn, error) {
	if _, err := env.Administrator(who); err != nil {
		return nil, err
	}
	if _, err := mcp.CleanName(name); err != nil {
		return nil, toolcrib.Errorf(toolcrib.CodeBadRequest, "%v", err)
	}
	all, err := s.Env.Secrets(who)
	if err != nil {
		return nil, err
	}
	var out []MCPSignIn
	for _, info := range all {
		if !strings.HasPrefix(info.Name, signInOf(name)) {
			continue
		}
		v, err := s.logoutMCP(ctx, who, name, &signIns{s, info.Name})
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

func (s *Service) logoutMCP(
	ctx context.Context, who toolcrib.Principal, name string, kept *signIns,
) (v MCPSignIn, err error) {
	unlock, err := kept.Lock() // what is refreshed now would be left
	if err != nil {
		return v, err
	}
	defer unlock()
	c, err := kept.Load()
	if err != nil {
		return v, err
	}
	if _, err = s.Env.RemoveSecret(ctx, who, kept.name); err != nil || c == nil {
		return v, err
	}
	v = viewSignIn(name, c)
	if v.Revoked, err = c.Revoke(ctx); err != nil {
		v.Problem = s.Env.Mask.Mask(err.Error())
	}
	return v, nil
}
