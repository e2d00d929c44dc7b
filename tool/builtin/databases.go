package builtin

import (
	"context"
	"errors"
	"strings"

	"github.com/toolcrib/toolcrib/tool/tables"
	"github.com/toolcrib/toolcrib/tool/tables/postgres"
	"github.com/toolcrib/toolcrib/tool/tables/sqlite"
)

// Database returns a database for describe_tables. The kind follows from its URL: postgres://…, postgresql://…
// or key=value pairs, otherwise a file of SQLite (see [sqlite.Path]). address is called at each use, since a secret
// in it may have changed; its error is for operators and must not contain secrets.
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
