// Package e2e tests the built binary from outside, against servers that imitate the real APIs and check
// every request as strictly.
package e2e
