// Package imports has no code: its tests keep the shape of the repository, which
// package may import which, and the rules of style that a machine can check.
package imports
