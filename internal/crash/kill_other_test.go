//go:build !unix

package crash

import "os"

// Supported reports whether a process can kill itself here as kill -9 would.
const Supported = false

func killSelf() {}

func killed(*os.ProcessState) bool { return false }
