// Package notify tells people elsewhere that a run waits for a decision of theirs
// (contract §2, approvals.notify).
//
// An address of http or https is a webhook: the message is posted as JSON, signed as
// Standard Webhooks 1.0 says (https://www.standardwebhooks.com). Any other address
// names a messenger, by the URL that nicholas-fedor/shoutrrr gives it; it gets a few
// lines of text.
//
// Nothing here fails a run, and nothing waits for longer than a few seconds. What goes
// wrong is told without the address, which may be a secret, but for its host.
package notify
