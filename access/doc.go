// Package access has the people that toolcrib acts for, and what proves that
// somebody is one of them: users, groups and their grants ([User], [Group],
// [Principal]), passwords ([Hasher]), and signed access tokens with a scope
// ([Signer], [Verifier], [Scope], [Quota]); issue 6, N18, N19, H19, H21 and M16.
//
// It is pure: it opens no file and no connection. [Directory], [Tokens] and [Quota]
// are what a store implements; [Memory] is all three of them in memory, and package
// toolcribtest/accesstest the suite for each.
//
// Whatever is missing, empty or not understood refuses. No error holds a password or
// a token.
package access
