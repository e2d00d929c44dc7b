// Package secret keeps secrets encrypted at rest: what ${secret:NAME} of the
// configuration stands for (contract §2).
//
// All of them are in one file, encrypted with age (age-encryption.org/v1) to an
// X25519 identity that is derived from the key file of toolcrib, so that the same key
// file opens it on every server, and age's own program does, too. The file is written
// whole or not at all; the names of the secrets are encrypted like their values.
package secret
