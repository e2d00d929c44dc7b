package cli

// Far are the commands that work against a server.
var Far = far
