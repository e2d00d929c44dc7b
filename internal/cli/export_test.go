package cli

// RemoteCommands are the commands that work against a server.
var RemoteCommands = remoteCommands
