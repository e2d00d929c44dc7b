package builtin

import (
	"context"
	"errors"
	"strings"

	"github.com/toolcrib/toolcrib/tool/tables"
	"github.com/toolcrib/toolcrib/tool/tables/postgres"
	"github.com/toolcrib/toolcrib/tool/tables/sqlite"
)

// Database is one that describe_tables shows (contract §2, sql).
type Database struct {
	Name string
	// URL is asked at each use: a secret in it may have changed. Its error is for
	// operators and must hold no secret.
	URL func(ctx context.Context) (string, error)
}

// Read reads the structure of a database of any kind that its URL may mean:
// postgres://…, postgresql://… or key=value pairs, else a file of SQLite (see
// [sqlite.Path]).
func (d Database) Read(ctx context.Context, q tables.Query) (tables.Structure, error) {
	address, err := d.URL(ctx)
	if err != nil {
		return tables.Structure{}, err
	}
	scheme, _, isURL := strings.Cut(address, "://")
	_, isFile := sqlite.Path(address)
	switch {
	case isURL && (scheme == "postgres" || scheme == "postgresql"):
		return postgres.Read(ctx, address, q)
	case isFile:
		return sqlite.Read(ctx, address, q)
	case !isURL && strings.Contains(address, "="):
		return postgres.Read(ctx, address, q)
	}
	return tables.Structure{}, errors.New("the URL of the database names no kind that can be read: postgres://…, or sqlite:FILE")
}

func databases(all []Database) []tables.Database {
	var found []tables.Database
	for _, d := range all {
		found = append(found, tables.Database{Name: d.Name, Read: d.Read})
	}
	return found
}
