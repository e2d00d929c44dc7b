package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/guard"
	"github.com/toolcrib/toolcrib/internal/hosts"
	"github.com/toolcrib/toolcrib/natsbus"
	"github.com/toolcrib/toolcrib/service/env"
	"github.com/toolcrib/toolcrib/store"
)

// certificateWarning is how long before its end a certificate is reported.
const certificateWarning = 14 * 24 * time.Hour

// ExamineServer checks what else a server needs, for administrators. answers reports whether a server of toolcrib
// answers at a URL, because transports belong to front ends.
func (d *Doctor) ExamineServer(
	ctx context.Context, who toolcrib.Principal, answers func(ctx context.Context, url string) error,
) ([]Finding, error) {
	return examined(
		ctx, who,
		check{"keys", "chmod 600 the file, and let the user of the server own it", d.checkKeys},
		check{"secrets", "restore the keys with which they were stored, or store them again: toolcrib secret set NAME", d.checkSecrets},
		check{"clock", "set the clocks by the network (NTP)", d.checkClocks},
		check{"workspaces", "make the folder writable for the user of the server", d.checkWorkspaces},
		check{"servers", "give all servers the same version and configuration; during an upgrade they may differ", d.checkServers},
		check{"tls", "correct server.tls.cert and server.tls.key", d.checkTLS},
		check{"bus", "correct bus.url, or start the bus", d.checkBus},
		check{"sign-in", "toolcrib users add NAME --admin; toolcrib tokens create --user NAME --sign-in", d.checkSignIn},
		check{
			"listen", "correct listen, or end the program that has the port",
			func(ctx context.Context) (string, string, error) { return d.checkListen(ctx, answers) },
		},
	)
}

// checkKeys reports whether others can read the keys that sign tokens and seal secrets, and whether the database is
// sealed with them.
func (d *Doctor) checkKeys(ctx context.Context) (detail, fix string, err error) {
	path, err := d.Env.KeysFile()
	if err != nil {
		return "", "", err
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path + ": is made at the first start", "", nil
	case err != nil:
		return "", "", err
	case info.Mode().Perm()&0o077 != 0:
		return "", "chmod 600 " + path, fmt.Errorf("%s can be read by others (%s)", path, info.Mode().Perm())
	}
	switch err := d.Env.Open(ctx); {
	case errors.Is(err, store.ErrKeys) && !d.Env.Config.Database.IsEmpty():
		return "", "copy the key file from another server of this database", err
	case errors.Is(err, store.ErrKeys):
		return "", "restore the key file of this data folder", err
	case err != nil:
		return path + ": only its owner can read it; see database", "", nil
	}
	return path + ": only its owner can read it; the database is sealed with these keys", "", nil
}

func (d *Doctor) checkWorkspaces(ctx context.Context) (detail, fix string, err error) {
	dir := d.Env.Workspaces()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", err
	}
	info, err := os.Stat(d.Env.DataDir)
	if err == nil && info.Mode().Perm()&0o022 != 0 {
		err := fmt.Errorf("%s can be written by others (%s)", d.Env.DataDir, info.Mode().Perm())
		return "", "chmod 700 " + d.Env.DataDir, err
	}
	detail = dir + ": runs of each user work in a folder of their own"
	if err := env.Writable(dir); err != nil || d.Env.Config.Database.IsEmpty() || d.Env.Store == nil {
		return detail, "", err
	}
	return d.checkSites(ctx, detail)
}

func (d *Doctor) checkTLS(context.Context) (detail, fix string, err error) {
	cert, key, err := d.Env.Certificate()
	if err != nil {
		return "", "", err
	}
	if cert == "" {
		listen, err := d.Env.Config.Listen.Resolve(d.Env.Resolver())
		if err == nil && !onLoopback(listen) {
			err = fmt.Errorf("none, and %s is reached by others: tokens and prompts go over the network in the clear", listen)
			return "", "set server.tls, or listen on loopback behind a proxy with TLS", err
		}
		return "none; only this machine reaches the server", "", err
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return "", "", err
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return "", "", err
	}
	detail = fmt.Sprintf("%s, for %s, until %s", cert, strings.Join(leaf.DNSNames, ", "),
		leaf.NotAfter.Format(time.DateOnly))
	if time.Until(leaf.NotAfter) < certificateWarning {
		return "", "renew the certificate; a running server reads it within a minute", errors.New(detail)
	}
	return detail, "", nil
}

// checkBus connects to the bus, and waits until the servers of the database had time to report.
func (d *Doctor) checkBus(ctx context.Context) (detail, fix string, err error) {
	if d.Env.Config.Bus.URL.IsEmpty() {
		return "none; one server, or several with limits of their own", "", nil
	}
	if d.Env.Store == nil {
		return "", "see database", errors.New("the database is not open")
	}
	site, err := d.Env.Site()
	if err != nil {
		return "", "see workspaces", err
	}
	bus, err := d.Env.OpenBus(ctx, nil, site, nil)
	if err != nil {
		return "", "", err
	}
	defer bus.Close()
	state := bus.State()
	if !state.Connected {
		return "", "", errors.New(state.Problem)
	}
	select {
	case <-time.After(natsbus.HereEvery + natsbus.HereEvery/4):
	case <-ctx.Done():
		return "", "", context.Cause(ctx)
	}
	detail = "connected to " + state.Server
	if state.Cluster != "" {
		detail += " of cluster " + state.Cluster
	}
	detail += fmt.Sprintf("; copies of its streams: %d; servers: %d", state.Replicas, len(bus.Others()))
	for _, s := range bus.Others() {
		detail += "\n" + guard.Visible(s.Name) + " " + guard.Visible(s.Version)
		if s.Config != d.Env.Config.Hash() {
			detail += ", with another configuration"
		}
	}
	return detail, "", nil
}

// onLoopback reports whether only this machine reaches an address to listen on.
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && hosts.Loopback(host)
}

// checkSignIn reports whether someone can administrate the server.
func (d *Doctor) checkSignIn(ctx context.Context) (detail, fix string, err error) {
	if d.Env.Config.Server.Auth == "none" { // the configuration allows it on loopback only
		return "server.auth: none: whoever reaches the server acts as anonymous", "", nil
	}
	if d.Env.Store == nil {
		return "", "see database", errors.New("the database is not open")
	}
	for u, err := range d.People.EachUser(ctx) {
		if err != nil {
			return "", "", err
		}
		if u.Admin && !u.Disabled {
			return u.Name + " is an administrator", "", nil
		}
	}
	return "the first start makes an administrator, and shows a token", "", nil
}

// checkListen reports whether the server answers, or could listen.
func (d *Doctor) checkListen(ctx context.Context, answers func(context.Context, string) error) (
	detail, fix string, err error,
) {
	listen, err := d.Env.Config.Listen.Resolve(d.Env.Resolver())
	if err != nil {
		return "", "", err
	}
	cert, _, err := d.Env.Certificate()
	if err != nil {
		return "", "", err
	}
	l, err := net.Listen("tcp", listen)
	if err == nil {
		return listen + ": is free; toolcrib serve would listen there", "", l.Close()
	}
	host, port, _ := net.SplitHostPort(listen)
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http"
	if cert != "" {
		scheme = "https"
	}
	url := scheme + "://" + net.JoinHostPort(host, port)
	if unanswered := answers(ctx, url); unanswered != nil {
		return "", "", fmt.Errorf("%w; and no server of toolcrib answers at %s: %w", err, url, unanswered)
	}
	return "a server answers at " + url + ", and is ready", "", nil
}
