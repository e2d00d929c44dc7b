package env

import (
	"fmt"
	"strings"

	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/notify"
	"github.com/toolcrib/toolcrib/internal/notify/address"
)

// NotifyTarget resolves an address of approvals.notify and its key. A webhook without a configured secret signs with a
// key of its own, so that no receiver can sign for another.
func (e *Env) NotifyTarget(n *config.Notify) (t notify.Target, err error) {
	if t.Address, err = n.URL.Resolve(e.Resolver()); err != nil || !address.IsWebhook(t.Address) {
		return t, err
	}
	if n.Secret.IsEmpty() {
		keys, err := e.Keys()
		if err != nil {
			return t, err
		}
		t.Key = keys.Derive("webhook " + t.Address)
		return t, nil
	}
	secret, err := n.Secret.Resolve(e.Resolver())
	if err == nil {
		t.Key, err = address.Key(secret)
	}
	return t, err
}

// InTheClear warns of plain http to another machine.
const InTheClear = "without encryption: arguments of calls, and the digest, go over the network in the clear; use https"

// ClearNotify warns of the addresses whose messages anybody on their way can read. A
// reference to a file or to a stored secret is not followed for that.
func ClearNotify(c *config.Config) (warnings []string) {
	for i := range c.Approvals.Notify {
		v := c.Approvals.Notify[i].URL
		if raw := v.Raw(); strings.Contains(raw, "${file:") || strings.Contains(raw, "${secret:") {
			continue
		}
		if text, err := v.Resolve(config.Resolver{}); err == nil && address.IsClear(text) {
			warnings = append(warnings, fmt.Sprintf("%s: approvals.notify[%d].url: %s is told by http, %s", v.Position(), i,
				address.Where(text), InTheClear))
		}
	}
	return warnings
}
