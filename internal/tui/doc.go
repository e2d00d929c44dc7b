// Package tui is the conversation on a terminal: what is finished is printed above
// and scrolls as everything on a terminal does, only a few lines at the bottom are
// drawn again. It knows events as clients see them (contract §8) and decides
// nothing: what a person says goes to a [Talk].
//
// Text of models, tools and files reaches the terminal only through guard.Visible
// and through a filter that lets nothing pass but colours.
package tui
