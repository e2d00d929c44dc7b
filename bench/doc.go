// Command bench measures what toolcrib's loop costs beside a loop that a good
// engineer writes by hand over net/http and encoding/json, on the same work,
// against the same mock server in another process, in the same run of the
// program. It prints ratios: seconds differ from machine to machine.
//
//	go run . [-runs N] [-rounds] [-cold TOOLCRIB_BINARY]
//
// The hand-written loop (floor.go) is the yardstick. It is frozen: it is changed
// only if it is unfair, and then the change says why.
package main
