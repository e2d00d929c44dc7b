//go:build unix

package postgres_test

import (
	"testing"

	"github.com/toolcrib/toolcrib/store/postgres"
)

// A copy of a database with the same keys is another one, also for a role with few rights.
func TestIdentity(t *testing.T) {
	name, address, keys := migrated(t)
	copied := name + "copy"
	admin(t, "postgres", "CREATE DATABASE "+copied+" TEMPLATE "+name, "CREATE ROLE "+name+" LOGIN PASSWORD 'x'")
	admin(t, name, "GRANT USAGE ON SCHEMA toolcrib TO "+name,
		"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA toolcrib TO "+name)
	least := server.URL(name)
	q := least.Query()
	q.Set("user", name)
	q.Set("password", "x")
	least.User, least.RawQuery = nil, q.Encode()
	var ids []string
	for _, one := range []string{address, least.String(), server.URL(copied).String()} {
		id, err := openAt(t, one, postgres.Options{Keys: keys}).Identity(t.Context())
		if err != nil || id == "" {
			t.Fatalf("%q, %v", id, err)
		}
		ids = append(ids, id)
	}
	if ids[0] != ids[1] || ids[0] == ids[2] {
		t.Errorf("identities %q: the first two are the same database, the third is a copy", ids)
	}
}
