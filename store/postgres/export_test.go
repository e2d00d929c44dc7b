package postgres

import "github.com/toolcrib/toolcrib/store/sqlstore"

// Translate is translate, for the tests.
func Translate(query string) string { return translate(query) }

// With returns options of a program that knows other steps of the schema.
func (o Options) With(steps sqlstore.Steps) Options {
	o.steps = steps
	return o
}

// With returns options of a program that knows other steps of the schema.
func (o MigrateOptions) With(steps sqlstore.Steps) MigrateOptions {
	o.steps = steps
	return o
}
