package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/version"
	"github.com/toolcrib/toolcrib/service/env"
)

var errNotOpen = errors.New("the database is not open")

// checkSecrets reports whether the stored secrets can be read.
func (d *Doctor) checkSecrets(context.Context) (detail, fix string, err error) {
	if d.Env.Store == nil {
		return "", "see database", errNotOpen
	}
	n, err := d.Env.ReadSecrets()
	if err != nil {
		return "", "", err
	}
	return guard.Count(n, "stored secret") + ", which can be read", "", nil
}

// clockMost is how far clocks may be apart.
const clockMost = time.Second

// checkClocks compares the clocks of this machine and of the other servers with that of the database.
func (d *Doctor) checkClocks(ctx context.Context) (detail, fix string, err error) {
	switch {
	case d.Env.Config.Database.IsEmpty():
		return "that of this machine is also that of the database", "", nil
	case d.Env.Store == nil:
		return "", "see database", errNotOpen
	}
	ahead, within, err := d.Env.ClockAhead(ctx)
	if err != nil {
		return "", "", err
	}
	servers, err := d.Drivers.Servers(ctx)
	if err != nil {
		return "", "", err
	}
	var wrong []string
	tell := func(of string, ahead, within time.Duration) {
		if ahead.Abs() > clockMost+within {
			wrong = append(wrong, fmt.Sprintf("the clock of %s is %s from that of the database", of, ahead.Round(100*time.Millisecond)))
		}
	}
	tell("this machine", ahead, within)
	for _, s := range servers {
		tell("server "+guard.Visible(s.Name), time.Duration(s.AheadMS)*time.Millisecond, 0)
	}
	if len(wrong) > 0 {
		return "", "", errors.New(strings.Join(wrong, "\n"))
	}
	return fmt.Sprintf("within %s of that of the database, here and on %s", (clockMost + within).Round(time.Millisecond),
		guard.Count(len(servers), "running server")), "", nil
}

// checkSites reports which servers have the workspaces of this one, and which runs wait for others.
func (d *Doctor) checkSites(ctx context.Context, detail string) (_, fix string, err error) {
	here, err := d.Env.Site()
	if err != nil {
		return "", "make the folder readable and writable, or restore the file", err
	}
	if err := d.Drivers.Copied(ctx, here); err != nil {
		return "", "mount the folder of that server here, or remove " + env.SiteName + " from the copy", err
	}
	servers, err := d.Drivers.Servers(ctx)
	if err != nil {
		return "", "", err
	}
	var with, others []string
	has := map[string]bool{here: true}
	for _, s := range servers {
		if has[s.Site] = true; s.Site == here {
			with = append(with, guard.Visible(s.Name))
		} else {
			others = append(others, guard.Visible(s.Name)+" ("+guard.Visible(s.Site)+")")
		}
	}
	switch {
	case len(others) > 0:
		detail += "\nbound: runs continue on servers with their folder of workspaces; here it is " + here
	default:
		detail += "\nshared by all running servers: " + here
	}
	if len(with) > 0 {
		detail += "\nservers with this folder: " + strings.Join(with, ", ")
	}
	if len(others) > 0 {
		detail += "\nservers with other folders: " + strings.Join(others, ", ")
	}
	open, err := d.Env.Store.OpenSites(ctx, env.DriverServer)
	if err != nil {
		return "", "", err
	}
	var waits []string
	for _, site := range slices.Sorted(maps.Keys(open)) {
		if site != "" && !has[site] {
			waits = append(waits, fmt.Sprintf("%s in the folder of workspaces %s, which no running server has",
				guard.Count(int(open[site]), "run"), guard.Visible(site)))
		}
	}
	if len(waits) > 0 {
		return "", "start the server that has the folder, move the folder (docs/grow.md), or cancel the runs: toolcrib runs list",
			errors.New(detail + "\n" + strings.Join(waits, "\n"))
	}
	return detail, "", nil
}

// checkServers lists the running servers, and in what they differ from this program and its configuration.
func (d *Doctor) checkServers(ctx context.Context) (detail, fix string, err error) {
	if d.Env.Store == nil {
		return "", "see database", errNotOpen
	}
	servers, err := d.Drivers.Servers(ctx)
	if err != nil {
		return "", "", err
	}
	differ := false
	lines := []string{guard.Count(len(servers), "running server")}
	for _, s := range servers {
		line := fmt.Sprintf("%s %s, since %s", guard.Visible(s.Name), guard.Visible(s.Version),
			s.Started.Local().Format(time.DateTime))
		for _, of := range []struct {
			what string
			is   bool
		}{
			{"another version", s.Version != version.Version()},
			{fmt.Sprintf("another schema: %d, here %d", s.Schema, env.Schema()), s.Schema != env.Schema()},
			{"another configuration", s.Config != d.Env.Config.Hash()},
		} {
			if of.is {
				line, differ = line+", with "+of.what, true
			}
		}
		lines = append(lines, line)
	}
	if detail = strings.Join(lines, "\n"); differ {
		return "", "", choice(detail)
	}
	return detail, "", nil
}
