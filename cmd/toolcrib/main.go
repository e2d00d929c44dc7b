// Command toolcrib is the command line of toolcrib.
package main

import "github.com/toolcrib/toolcrib/app"

func main() { app.Main(app.Options{}) }
