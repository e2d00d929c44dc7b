package postgres

import (
	"context"

	"github.com/toolcrib/toolcrib/store/sqlstore"
)

// Identity distinguishes the database from others, also from copies that another server or another database has. A
// standby that takes over has the same.
func (s *Store) Identity(ctx context.Context) (id string, err error) {
	for _, query := range []string{
		"SELECT (SELECT system_identifier FROM pg_control_system()) || ' ' || oid FROM pg_database WHERE datname = current_database()",
		"SELECT oid || ' ' || 'toolcrib'::regnamespace::oid FROM pg_database WHERE datname = current_database()",
	} {
		err = s.db.Read(ctx, func(c sqlstore.Conn) error {
			return c.Each(ctx, query, nil, func(scan sqlstore.Scan) error { return scan(&id) })
		})
		if err == nil { // otherwise the role may not use the function
			break
		}
	}
	return id, mapped(s.db.path, err)
}
