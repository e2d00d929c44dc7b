package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/service/nodes"
)

// ExamineBus checks this node and its offers to others, for administrators. Without a bus, offers and
// tokens there is nothing to check.
func (d *Doctor) ExamineBus(ctx context.Context, who toolcrib.Principal) ([]Finding, error) {
	var checks []check
	if !d.Env.Config.Bus.URL.IsEmpty() {
		checks = append(checks, check{
			"node", "correct bus.url and the permissions of its user, or start the bus",
			func(ctx context.Context) (string, string, error) { return d.checkNode(ctx, who) },
		})
	}
	if len(d.Env.Config.Bus.Offers) > 0 {
		checks = append(checks, check{
			"bus.offers", "correct bus.offers",
			func(ctx context.Context) (string, string, error) { return d.checkOffers(ctx, who) },
		})
	}
	tokens := slices.DeleteFunc(d.Env.Config.BoundNames(), func(name string) bool {
		return d.Env.Config.Tools.Bound[name].Token.IsEmpty()
	})
	if len(tokens) > 0 {
		checks = append(checks, check{
			"tools.bound", "ask the other node for a token of its own (toolcrib bus token issue), and store it",
			func(context.Context) (string, string, error) { return d.checkTokens(tokens) },
		})
	}
	return examined(ctx, who, checks...)
}

// checkTokens reports tokens of bound tools that cannot be used. Only the nodes that have issued them know the rest.
func (d *Doctor) checkTokens(names []string) (detail, fix string, err error) {
	c := d.Env.Config
	for _, name := range names {
		b, problem := c.Tools.Bound[name], ""
		token, err := b.Token.Resolve(d.Env.Resolver())
		if err != nil {
			return "", "", err
		}
		claims, err := access.ReadUnverified(token, access.BusAudience)
		switch expires := claims.Expires.Time(); {
		case err != nil:
			problem = err.Error()
		case c.Bus.URL.IsEmpty():
			return "", "set bus.url", c.ErrorAt(config.JoinKey("tools.bound", name), "there are no other nodes without bus.url")
		case !d.People.Now().Before(expires):
			problem = "the token has expired at " + expires.Local().Format(time.DateTime)
		default:
			if err := claims.Scope.Offers(access.Target{Capability: b.Capability}); err != nil {
				problem = err.Error()
			}
		}
		if problem != "" {
			return "", "", c.ErrorAt(config.JoinKey("tools.bound", name)+".token", problem)
		}
		detail += fmt.Sprintf("%s: until %s; ", name, claims.Expires.Time().Local().Format(time.DateTime))
	}
	return strings.TrimSuffix(detail, "; "), "", nil
}

// checkNode connects to the bus as an instance of this node, and listens to the others for a moment.
func (d *Doctor) checkNode(ctx context.Context, who toolcrib.Principal) (detail, fix string, err error) {
	if d.Env.Store == nil {
		return "", "see database", errors.New("the database is not open")
	}
	i, err := d.Nodes.Dial(ctx)
	if err != nil {
		return "", "", err
	}
	defer i.Close()
	i.Listen(ctx)
	s, err := i.Status(ctx, who)
	if err == nil && s.Problem != "" {
		err = errors.New(s.Problem)
	}
	if err != nil {
		return "", "", err
	}
	detail = fmt.Sprintf("%s, with the key %s; other nodes: %d", guard.Visible(s.Name), s.Key, len(s.Peers))
	var skewed, unknown bool
	for _, p := range s.Peers {
		name := p.Registered
		if name == "" {
			name = guard.Visible(p.Name) + " " + string(p.Node)
		}
		detail += fmt.Sprintf("\n%s: %s; capabilities: %d", name, nodes.LevelText(p.Trust), p.Capabilities)
		if p.Skewed {
			skewed = true
			detail += "; its clock differs by more than a minute, so that calls are refused as expired"
		}
		unknown = unknown || p.Trust == toolcrib.TrustUnknown
	}
	for _, e := range s.Absent {
		detail += fmt.Sprintf("\n%s: %s; not heard from", e.Name, nodes.LevelText(e.Trust))
	}
	switch {
	case skewed:
		return "", "set the clock of this machine, or of the other one", errors.New(detail)
	case unknown:
		return "", "to let an unknown node in: toolcrib bus trust KEY member, or send it an invite (toolcrib bus invite)",
			choice(detail)
	}
	return detail, "", nil
}

// checkOffers reports offers that cannot be served.
func (d *Doctor) checkOffers(ctx context.Context, who toolcrib.Principal) (detail, fix string, err error) {
	all, err := d.Nodes.Offers()
	if err != nil {
		return "", "", err
	}
	var names []string
	for _, o := range all {
		names = append(names, o.Name.String())
		if o.Tool == "" {
			continue
		}
		t, err := d.Policy.Tool(ctx, who, o.Tool)
		if err == nil && t.Unusable != "" {
			err = errors.New(t.Unusable)
		}
		if err != nil {
			return "", "name a tool that can be called; toolcrib tools list", d.Env.Config.OfferError(o.Name.String(), "tool", err.Error())
		}
	}
	return strings.Join(names, ", "), "", nil
}
