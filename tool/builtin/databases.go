package builtin

import (
	"context"
	"errors"
	"strings"

	"github.com/toolcrib/toolcrib/tool/tables"
	"github.com/toolcrib/toolcrib/tool/tables/postgres"
	"github.com/toolcrib/toolcrib/tool/tables/sqlite"
)

// Database is one that describe_tables shows (contract §2, sql), of any kind that its URL may
// mean: postgres://…, postgresql://… or key=value pairs, else a file of SQLite (see
// [sqlite.Path]). The URL is asked for at each use, since a secret in it may have changed; its
// error is for operators and must hold no secret.
func Database(name string, address func(ctx context.Context) (string, error)) tables.Database {
	return tables.Database{Name: name, Read: func(ctx context.Context, q tables.Query) (tables.Structure, error) {
		at, err := address(ctx)
		if err != nil {
			return tables.Structure{}, err
		}
		scheme, _, isURL := strings.Cut(at, "://")
		_, isFile := sqlite.Path(at)
		switch {
		case isURL && (scheme == "postgres" || scheme == "postgresql"):
			return postgres.Read(ctx, at, q)
		case isFile:
			return sqlite.Read(ctx, at, q)
		case !isURL && strings.Contains(at, "="):
			return postgres.Read(ctx, at, q)
		}
		return tables.Structure{}, errors.New("the URL of the database names no kind that can be read: postgres://…, or sqlite:FILE")
	}}
}
