package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/access"
	"github.com/toolcrib/toolcrib/agent"
	"github.com/toolcrib/toolcrib/bus"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/render"
	"github.com/toolcrib/toolcrib/service/nodes"
)

func (a *app) busStatusCommand(cmd *cobra.Command) {
	a.answering(cmd, a.forAdministrators(a.reading), func(c call) (any, func(), error) {
		s, err := c.at.BusStatus(c, c.who)
		return s, func() { a.tellBus(&s) }, err
	})
}

func (a *app) tellBus(s *nodes.Status) {
	state := "connected"
	switch {
	case !s.Bus:
		state = "none: there are no other nodes without bus.url"
	case !s.Connected:
		state = "not connected: " + s.Problem
	}
	offers := func(names []string) string { return cmp.Or(strings.Join(names, ", "), "none") }
	a.fields(7, "node", s.Name, "key", string(s.Key), "bus", state, "offers", offers(s.Offers))
	for _, v := range s.Invites {
		text := fmt.Sprintf("%s for one node, as %s, until %s", v.ID, v.Trust, minute(v.Expires))
		if v.Name != "" {
			text += ", called " + v.Name
		}
		a.fields(7, "invite", text)
	}
	if len(s.Peers)+len(s.Absent) == 0 {
		return
	}
	fmt.Fprintln(a.out)
	rows := [][]string{{"NODE", "TRUST", "LOAD", "OFFERS", "SEEN", "KEY"}}
	for _, p := range s.Peers {
		rows = append(rows, []string{
			guard.Visible(p.Title()), nodes.LevelText(p.Trust), fmt.Sprintf("%.0f %%", 100*p.Load),
			offers(p.Offers), day(p.Seen), string(p.Node),
		})
	}
	for _, e := range s.Absent {
		rows = append(rows, []string{e.Name, nodes.LevelText(e.Trust), "-", "-", "-", string(e.Key)})
	}
	a.outStyle.Table(a.out, rows)
	for i := range s.Peers {
		p := &s.Peers[i]
		for _, q := range p.Quarantined {
			fmt.Fprintf(a.out, "\n%s gets no calls of %s for %s (instance %s): most have failed, the last one with %s\n",
				guard.Visible(p.Title()), q.Capability, render.Duration(time.Until(q.Until).Round(time.Second)), q.Instance,
				q.Reason)
		}
	}
}

func (a *app) busCapabilitiesCommand(cmd *cobra.Command) {
	node := cmd.Flags().String("node", "", "")
	listing(a, cmd, a.forAdministrators(a.reading), "CAPABILITY|NODE|NEEDS|TRUST|+DESCRIPTION",
		func(c call) ([]nodes.Capability, error) {
			all, err := c.at.BusCapabilities(c, c.who, *node)
			other := func(k nodes.Capability) bool { return !k.Local }
			if err == nil && *node == "" && !slices.ContainsFunc(all, other) {
				a.notice("no other node offers this one anything; `toolcrib bus status` shows which it trusts")
			}
			return all, err
		},
		func(k *nodes.Capability) []string {
			trust := nodes.LevelText(k.NodeTrust)
			if k.Local {
				trust = "self"
			}
			about, _, _ := strings.Cut(k.Description, "\n")
			return []string{
				k.Name.String(), guard.Visible(k.NodeName), string(k.Trust), trust,
				guard.Visible(guard.Clip(about, 80)),
			}
		})
}

// busCallFlags are the flags of bus call.
type busCallFlags struct {
	input, params, node, token string
	timeout                    time.Duration
	stream                     bool
}

func (a *app) busCallCommand(cmd *cobra.Command) {
	var f busCallFlags
	flags := cmd.Flags()
	flags.StringVar(&f.input, "input", "", "")
	flags.StringVar(&f.params, "params", "", "")
	flags.StringVar(&f.node, "node", "", "")
	flags.StringVar(&f.token, "token", "", "")
	flags.BoolVar(&f.stream, "stream", false, "")
	flags.Func("timeout", "", span(&f.timeout))
	flags.Bool("json", false, "")
	a.doing(cmd, nil, func(c call) error {
		q, err := a.busCall(c.arg(), &f)
		if err != nil {
			return err
		}
		s, who, err := a.forAdministrators(a.changing)(c)
		if err != nil {
			return err
		}
		ctx, stop := a.interruptible(c, agent.NameOf(who), a.err)
		defer stop()
		if f.stream {
			q.Frame = func(frame bus.Frame) error { return printJSON(a.out, frame, false) }
		}
		out, err := s.BusCall(ctx, who, q)
		switch {
		case err != nil:
			return a.busFailed(err, s.Env.Config.Bus.URL.IsEmpty(), c.json)
		case f.stream:
			return printJSON(a.out, bus.Frame{Event: "done", Data: out}, false)
		}
		return printJSON(a.out, out, true)
	})
}

// busFailed returns the error of a call with its code and reference, or prints it as JSON.
func (a *app) busFailed(err error, alone, asJSON bool) error {
	var e *toolcrib.Error
	switch {
	case !errors.As(err, &e) || e.Code == toolcrib.CodeInternal && e.Ref == "":
		return err
	case asJSON:
		return errors.Join(printJSON(a.out, bus.EncodeError(err), true), silent(codeOf(err)))
	}
	text := string(e.Code) + ": " + strings.TrimPrefix(noCapability(err, alone).Error(), string(e.Code)+": ")
	if e.Ref != "" {
		text += " (" + e.Ref + ")"
	}
	return &exitError{codeOf(err), text}
}

// busCall returns the call that flags describe.
func (a *app) busCall(name string, f *busCallFlags) (q nodes.CallRequest, err error) {
	if q.Name, err = bus.ParseName(name); err != nil {
		return q, err
	}
	if f.input == "-" && f.token == "-" {
		return q, usagef("--token - and --input -: both read standard input; give one of them otherwise")
	}
	if q.Input, err = a.jsonArgument(f.input); err != nil {
		return q, err
	}
	if q.Params = json.RawMessage(f.params); f.params != "" && !json.Valid(q.Params) {
		return q, usagef("--params: must be JSON")
	}
	if f.input != "" && !json.Valid(q.Input) {
		return q, usagef("--input: must be JSON")
	}
	q.Node, q.Timeout = f.node, f.timeout
	q.Token, err = a.busToken(f.token)
	return q, err
}

// busToken returns a token that is given literally, as a file, or as - on standard input. Output masks it from now on.
func (a *app) busToken(text string) (string, error) {
	switch {
	case text == "":
		return "", nil
	case text == "-":
		return a.typedToken()
	case strings.HasPrefix(text, access.BusPrefix):
		return a.tokenFrom(strings.NewReader(text))
	}
	f, err := os.Open(text)
	if err != nil {
		return "", usagef("--token: neither begins with %s nor is a file (%v)", access.BusPrefix, errors.Unwrap(err))
	}
	defer f.Close()
	return a.tokenFrom(f)
}

// noCapability adds advice to an error about a capability that no node offers.
func noCapability(err error, alone bool) error {
	if toolcrib.CodeOf(err) != toolcrib.CodeNotFound {
		return err
	}
	text := "`toolcrib bus capabilities` lists what this node may call"
	if alone {
		text = "there are no other nodes without bus.url"
	}
	return hint(err, "", text)
}

// traceEvery is the interval at which bus trace --follow asks a server.
const traceEvery = 500 * time.Millisecond

func (a *app) busTraceCommand(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Bool("json", false, "")
	follow := flags.Bool("follow", false, "")
	counters := flags.Bool("counters", false, "")
	a.doing(cmd, a.forAdministrators(a.reading), func(c call) error {
		if *follow && *counters {
			return usagef("--follow and --counters: give one of them")
		}
		t, err := c.at.BusTrace(c, c.who, 0)
		switch {
		case err != nil:
			return err
		case c.json && !*follow:
			return printJSON(a.out, t, true)
		case *counters:
			table(a, "CAPABILITY|SIDE|RESULT|CALLS|MEAN", t.Counters, func(n *bus.Counter) []string {
				mean := time.Duration(0)
				if n.Calls > 0 {
					mean = n.Duration / time.Duration(n.Calls)
				}
				return []string{n.Capability, side(n.Served), string(n.Result), fmt.Sprint(n.Calls), shortDuration(mean)}
			})
			return nil
		case !*follow:
			table(a, "TIME|CAPABILITY|SIDE|RESULT|MS|+FROM|+TO|+ID", t.Entries, traceRow)
			return nil
		}
		ctx, stop := a.interruptible(c, agent.NameOf(c.who), io.Discard)
		defer stop()
		return a.followTrace(ctx, c, t)
	})
}

// followTrace prints calls as they end, until ctx ends.
func (a *app) followTrace(ctx context.Context, c call, t nodes.Trace) (err error) {
	tick := time.NewTicker(traceEvery)
	defer tick.Stop()
	for after := int64(0); ; {
		for _, e := range t.Entries {
			if after = e.Seq; c.json {
				err = printJSON(a.out, e, false)
			} else {
				fmt.Fprintln(a.out, strings.Join(traceRow(&e), "  "))
			}
			if err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		if t, err = c.at.BusTrace(ctx, c.who, after); err != nil {
			return err
		}
	}
}

func side(served bool) string {
	if served {
		return "served"
	}
	return "called"
}

func shortDuration(d time.Duration) string { return d.Round(time.Millisecond).String() }

func traceRow(e *nodes.TraceEntry) []string {
	where := side(e.Served)
	if e.Local {
		where = "local"
	}
	return []string{
		e.Time.Local().Format("15:04:05.000"), e.Capability.String(), where, string(e.Result),
		fmt.Sprint(e.MS), guard.Visible(cmp.Or(e.FromName, string(e.From))), guard.Visible(cmp.Or(e.ToName, string(e.To))),
		guard.Visible(e.ID),
	}
}

func (a *app) busTrustCommand(cmd *cobra.Command) {
	name := cmd.Flags().String("name", "", "")
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		invite := strings.HasPrefix(c.args[0], nodes.InvitePrefix)
		level := toolcrib.TrustMember
		switch {
		case len(c.args) > 1:
			var err error
			if level, err = nodes.ParseLevel(c.args[1]); err != nil {
				return nil, nil, err
			}
		case !invite:
			return nil, nil, usagef("LEVEL is missing: %s\nSee: %s --help", strings.Join(nodes.Levels(), ", "),
				cmd.CommandPath())
		}
		if invite && level == toolcrib.TrustUnknown {
			return nil, nil, usagef("an invite is used to trust the node that has made it; give another level")
		}
		s, who, err := a.forAdministrators(a.changing)(c)
		if err != nil {
			return nil, nil, err
		}
		if invite {
			e, theirs, err := s.JoinNode(c, who, c.args[0], level)
			if err != nil {
				return nil, nil, err
			}
			return joinedNode{e, theirs}, func() {
				a.says(e.Name, fmt.Sprintf("trusted as %s; it trusts this node as %s", nodes.LevelText(e.Trust), theirs))
			}, nil
		}
		key, err := s.Nodes.Find(c, c.args[0])
		if err != nil {
			return nil, nil, err
		}
		e, err := s.Nodes.SetTrust(c, who, key, level, *name)
		return e, func() {
			word := "trusted as " + nodes.LevelText(e.Trust)
			if e.Trust == toolcrib.TrustUnknown {
				word = "removed"
			}
			a.says(e.Name, word)
		}, err
	})
}

// joinedNode is the result of bus trust with an invite.
type joinedNode struct {
	nodes.Entry
	Theirs string `json:"trusts_this_node"` // level
}

func (a *app) busInviteCommand(cmd *cobra.Command) {
	var q nodes.InviteRequest
	var revoke string
	oneWord(cmd, "level", func(text string) { q.Trust = toolcrib.Trust(text) }, nodes.Levels()[1:]...)
	cmd.Flags().Func("ttl", "", span(&q.TTL))
	cmd.Flags().StringVar(&q.Name, "name", "", "")
	cmd.Flags().StringVar(&revoke, "revoke", "", "")
	a.answering(cmd, a.forAdministrators(a.changing), func(c call) (any, func(), error) {
		if revoke != "" {
			v, err := c.Nodes.RevokeInvite(c, c.who, revoke)
			return v, func() { a.says(v.ID, "revoked") }, hint(err, revoke, "`toolcrib bus status` shows those that can be used")
		}
		v, err := c.Nodes.Invite(c, c.who, q)
		if err == nil && c.Env.Config.Bus.URL.IsEmpty() {
			a.notice("no bus.url is set: no other node reaches this one")
		}
		return v, func() {
			fmt.Fprintf(a.err, "%s: for one node, as %s, until %s; there: toolcrib bus trust CODE\n", v.ID, v.Trust, minute(v.Expires))
			fmt.Fprintln(a.out, v.Code)
		}, err
	})
}

func (a *app) busTokenIssueCommand(cmd *cobra.Command) {
	var q nodes.TokenRequest
	var params []string
	flags := cmd.Flags()
	flags.StringVar(&q.For, "for", "", "")
	flags.StringArrayVar(&q.Capabilities, "capability", nil, "")
	flags.StringArrayVar(&params, "param", nil, "")
	flags.Func("ttl", "", span(&q.TTL))
	flags.Func("max-calls", "", more(&q.MaxCalls))
	flags.Func("per-minute", "", more(&q.PerMinute))
	flags.StringVar(&q.Label, "label", "", "")
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		if q.For == "" {
			return nil, nil, usagef("--for is missing: the key of a node, its name, or '*' for anyone who has the token")
		}
		if len(q.Capabilities) == 0 {
			return nil, nil, usagef("--capability is missing, such as --capability rag.query@1.0")
		}
		var err error
		if q.Params, err = parseBusParams(params); err != nil {
			return nil, nil, err
		}
		s, who, err := a.forAdministrators(a.changing)(c)
		if err != nil {
			return nil, nil, err
		}
		t, err := s.Nodes.IssueToken(c, who, q)
		return t, func() {
			for _, name := range s.Nodes.NotOffered(q.Capabilities) {
				a.notice("bus.offers does not have %s now", name)
			}
			fmt.Fprintf(a.err, "%s: good %s\n", short(t.ID), busGoodFor(&t))
			fmt.Fprintln(a.out, t.Token.Token)
		}, err
	})
}

// parseBusParams parses NAME=VALUE; a value that is not JSON is a text.
func parseBusParams(list []string) (map[string][]any, error) {
	texts := make([]string, len(list))
	for i, text := range list {
		name, raw, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, usagef("--param: must be NAME=VALUE, such as corpus=notes")
		}
		if _, err := jsonValue(raw); err != nil {
			quoted, err := json.Marshal(raw)
			if err != nil {
				return nil, err
			}
			raw = string(quoted)
		}
		texts[i] = name + "=" + raw
	}
	return parseParams(texts)
}

// busGoodFor is [goodFor] with the name that the node has here.
func busGoodFor(t *nodes.Token) string {
	of := t.Token
	of.User = cmp.Or(t.Node, of.User)
	return goodFor(&of)
}

func (a *app) busTokenListCommand(cmd *cobra.Command) {
	listing(a, cmd, a.forAdministrators(a.reading), "TOKEN|STATE|LABEL|BY|ISSUED|GOOD",
		func(c call) ([]nodes.Token, error) { return c.Nodes.Tokens(c, c.who) },
		func(t *nodes.Token) []string {
			return []string{
				short(t.ID), strings.ReplaceAll(t.State, "_", " "), t.Label, t.IssuedBy, day(t.IssuedAt), busGoodFor(t),
			}
		})
}

func (a *app) busTokenShowCommand(cmd *cobra.Command) {
	a.answering(cmd, nil, func(c call) (any, func(), error) {
		text, err := a.busToken(c.arg())
		if err != nil {
			return nil, nil, err
		}
		s, who, err := a.forAdministrators(a.reading)(c)
		if err != nil {
			return nil, nil, err
		}
		t, err := s.Nodes.ShowToken(c, who, text)
		return t, func() {
			state := strings.ReplaceAll(t.State, "_", " ")
			if !t.Own {
				state = "of another node, which alone can check it: " + t.Claims.Issuer
			}
			rows := []string{"id", t.ID, "state", state, "for", strings.TrimPrefix(busGoodFor(&t), "for ")}
			if t.Label != "" {
				rows = append(rows, "label", t.Label)
			}
			a.fields(8, append(rows, "issued", minute(t.IssuedAt)+" by "+t.IssuedBy)...)
		}, err
	})
}

func (a *app) busTokenRevokeCommand(cmd *cobra.Command) {
	a.answering(cmd, a.forAdministrators(a.changing), func(c call) (any, func(), error) {
		text := c.arg()
		if _, none := os.Stat(text); none == nil {
			read, err := a.busToken(text)
			if err != nil {
				return nil, nil, err
			}
			text = read
		}
		t, changed, err := c.Nodes.RevokeToken(c, c.who, text)
		word := "revoked"
		if !changed {
			word += " already"
		}
		return t, func() { a.says(short(t.ID), word) }, noSuch("bus token", err, c.arg())
	})
}

// nodeNames completes the names of other nodes.
func nodeNames(c call) ([]string, error) {
	all, err := c.Nodes.Register(c)
	return listed(all, func(e nodes.Entry) string { return e.Name + "\t" + nodes.LevelText(e.Trust) }, err)
}
