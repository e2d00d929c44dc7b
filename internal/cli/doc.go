// Package cli is toolcrib's command line (contract §3), and the only place besides
// cmd/toolcrib where the parts are wired together: configuration, trust, store,
// gate, models and the loop.
//
// Results go to standard output, everything else to standard error. A command
// opens only what it needs: version, completion and config schema touch no file.
package cli
