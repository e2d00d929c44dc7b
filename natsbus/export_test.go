package natsbus

import "context"

// Tidy is tidy, for the tests.
func (b *Bus) Tidy(ctx context.Context) error { return b.tidy(ctx) }
