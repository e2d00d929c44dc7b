// Package store holds what the stores of runs have in common: the projection of
// a run ([RunRecord], [Project]), filters, overrides, system events and errors.
// It is pure: the databases are in the packages below it.
//
// Whatever is here follows from the journal; a record can be made again from a
// run's events at any time.
package store
