// Package standing tells the gate what a principal may do today: [People] looks up the
// user in the directory, and the access token among those that were issued (contract
// §6, N18, H19, H21, M16).
//
// What it has read it keeps for as long as the version of the directory is the same,
// and it reads the version, which is one number, each time it is asked. So a changed
// grant, a disabled user and a revoked token count from the next question on, whichever
// process changed them. Those who stand in no directory (local:OSUSER, anonymous) cost
// no look at all, unless they act by a token.
package standing
