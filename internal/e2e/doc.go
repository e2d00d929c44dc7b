// Package e2e tests the built binary from outside, against servers that speak the
// real APIs' shapes and check every request as strictly as the real ones do.
package e2e
