package cli_test

import (
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// natsServer is a NATS server with JetStream, as a process of its own: natsserver FOLDER. It writes its address, and runs
// until it is killed.
func natsServer() {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: os.Args[1],
		DisableJetStreamBanner: true, JetStreamMaxMemory: 1 << 26, JetStreamMaxStore: 1 << 28,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		os.Exit(1)
	}
	fmt.Println(s.ClientURL())
	s.WaitForShutdown()
}
