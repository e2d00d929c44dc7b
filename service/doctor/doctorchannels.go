package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/service/channels"
)

// maxChannelLines bounds the senders, and the runs, that the check of a channel lists.
const maxChannelLines = 10

// channelChecks returns a check for each channel.
func (d *Doctor) channelChecks() (list []check) {
	for _, name := range slices.Sorted(maps.Keys(d.Env.Config.Channels)) {
		list = append(list, check{
			"channels." + name, "correct channels." + name,
			func(ctx context.Context) (string, string, error) { return d.checkChannel(ctx, name) },
		})
	}
	return list
}

// checkChannel asks the API who the account is, and reports what the server has seen: the last senders who are not
// listed, and runs whose answers may not have arrived.
func (d *Doctor) checkChannel(ctx context.Context, name string) (detail, fix string, err error) {
	set := d.Env.Config.Channels[name]
	api, err := d.Env.OpenChannel(name)
	if err != nil {
		return "", "", err
	}
	probing, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	account, err := api.Account(probing)
	if err != nil {
		return "", "correct the token in channels." + name + ".url", err
	}
	detail = guard.Visible(account)
	if !channels.Inbound(set) {
		return detail + "; messages go out, and start no runs", "", nil
	}
	detail += fmt.Sprintf("; listed senders: %d", len(set.Inbound.Allow))
	if d.Env.Store == nil {
		return detail, "", nil
	}
	r, err := channels.ReadReport(ctx, d.Env.Store, name)
	if err != nil {
		return "", "", err
	}
	if r.Total > 0 {
		detail += fmt.Sprintf("\n%s from unlisted senders; the last ones, by ID:",
			guard.Count(int(r.Total), "message"))
	}
	for _, s := range r.Refused[:min(len(r.Refused), maxChannelLines)] {
		detail += "\n  " + guard.Visible(s.ID)
		if s.Name != "" {
			detail += " (called " + guard.Visible(s.Name) + ")"
		}
		detail += s.At.Format(", 2006-01-02 15:04")
	}
	if r.Dropped > 0 {
		detail += fmt.Sprintf("\n%s over the limit were not read", guard.Count(int(r.Dropped), "message"))
	}
	var wrong []string
	for _, s := range set.Senders(name) {
		if s.User == "" {
			continue
		}
		if _, err := d.Env.Store.Access().User(ctx, s.User); errors.Is(err, toolcrib.ErrNotFound) {
			fix = "toolcrib users add " + s.User + ", or correct channels." + name + ".inbound.allow"
			wrong = append(wrong, fmt.Sprintf("%s cannot write: there is no user %s", guard.Visible(s.ID), s.User))
		} else if err != nil {
			return "", "", err
		}
	}
	if r.Problem != "" {
		wrong = append(wrong, "the server cannot receive: "+guard.Visible(r.Problem))
	}
	if len(r.Undelivered) > 0 {
		fix = "toolcrib runs show RUN has an answer; tell its user"
	}
	for _, u := range r.Undelivered[:min(len(r.Undelivered), maxChannelLines)] {
		wrong = append(wrong, fmt.Sprintf("the answer of run %s may not have arrived: %s",
			toolcrib.ShortID(u.Run), u.Why))
	}
	if len(wrong) > 0 {
		return "", fix, errors.New(detail + "\n" + strings.Join(wrong, "\n"))
	}
	return detail, "", nil
}
