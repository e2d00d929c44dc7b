// Command bench measures what toolcrib's loop costs beside a loop that a good
// engineer writes by hand over net/http and encoding/json, on the same work,
// against the same mock server in another process, in the same run of the
// program. It prints ratios: seconds differ from machine to machine.
//
//	go run . [-runs N] [-cold TOOLCRIB_BINARY]
//
// There are three floors. The hand-written loop (floor.go) is the yardstick; with a
// fully synced SQLite event each it is that of the durable loop; the raw wire
// (raw.go) is what the bytes alone take. They are frozen: they are changed only if
// they are unfair, and then the change says why. All are measured in turns beside
// toolcrib, and the ratios are medians over the turns, since a busy machine hits
// neighbours alike. Of long runs it also prints what a round costs at round 10, 50
// and 200.
package main
