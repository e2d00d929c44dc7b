package postgres

// Translate is translate, for the tests.
func Translate(query string) string { return translate(query) }
