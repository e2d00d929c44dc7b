// Package catalog knows models of public APIs: what they cost, how much context
// they have, what they can do. The data are a trimmed snapshot of charm's catwalk
// (see NOTICE and [Catalog.Info]); a newer file can be read with [Parse] and laid over
// it with [Catalog.Merge].
//
// A model that is not in the data stays unknown: a price is never guessed from
// that of a similar model, or of another vendor. Prices are the list prices of
// the vendor for the smallest tier of context, in US dollars per 1M tokens.
package catalog
