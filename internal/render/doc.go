// Package render shows runs to people: live on a terminal, as lines where there is
// none, and as a story afterwards. It decides nothing and keeps nothing.
//
// Whatever comes from a model, a tool or a file passes guard.Visible before it is
// written to a terminal, so that no escape sequence in it can command one. Colours
// are written here and nowhere else, and only if [Style.Color] says so.
package render
