package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/toolcrib/toolcrib"
	"github.com/toolcrib/toolcrib/internal/config"
	"github.com/toolcrib/toolcrib/internal/trust"
	"github.com/toolcrib/toolcrib/service"
)

// Everything that steers toolcrib is in the audit log. What the store changes
// itself it writes down itself; this is what changes outside of it.

// recordTrust writes down that what a folder brings is trusted now, or no more. What a
// folder brings may be the configuration that says where the data lies, so it is
// written down in the data folder that counts after it. It never takes trust back, and
// never keeps it: where it cannot be written down, that is told.
func (a *app) recordTrust(ctx context.Context, kind toolcrib.Kind, folder *service.Folder) {
	err := a.storeOfTrust(ctx)
	who := toolcrib.Principal{}
	if err == nil {
		who, err = a.principal(ctx)
	}
	if err != nil {
		a.notice("not recorded in the audit log: %v", err)
		return
	}
	a.service.RecordTrust(ctx, who, kind, folder, "")
}

// storeOfTrust opens the store of the configuration that counts without a question:
// one of the current folder only if it is trusted, else the user's own, else none.
func (a *app) storeOfTrust(ctx context.Context) error {
	if a.service != nil && a.service.IsOpen() {
		return nil
	}
	if a.config == nil {
		c, err := config.Load(config.Find(a.configFlag, os.Getenv), a.trustedAlready)
		var untrusted *trust.UntrustedError
		if errors.As(err, &untrusted) {
			c, err = ownConfiguration()
		}
		if err != nil {
			return err
		}
		a.config = c
		// A question that was asked first has its answer now, and what is read later
		// is read as it is then.
		defer func() { a.config = nil }()
	}
	s, err := a.svc()
	if err == nil {
		err = s.Open(ctx)
	}
	return err
}

// ownConfiguration is that of the user's own folder, or of nobody.
func ownConfiguration() (*config.Config, error) {
	path := filepath.Join(config.UserFolder(os.Getenv), config.FileName)
	if _, err := os.Stat(path); err != nil {
		return config.Default(), nil
	}
	return config.Load(config.Source{Path: path, Origin: config.OriginUser}, nil)
}
