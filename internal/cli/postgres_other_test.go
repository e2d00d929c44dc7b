//go:build !unix

package cli_test

import "github.com/toolcrib/toolcrib/internal/config"

const (
	databaseVariable = "DATABASE_TEMPLATE"
	keysVariable     = "DATABASE_KEYS"
)

func inPostgreSQL(string) func(*config.Config, string) { return nil }
