package jail

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// listen makes the socket on which the programs of the job reach the proxy, and sends it to the process that started
// the copy, by the status socket. It belongs to the network namespace of the job, whichever process has it open.
func (j *Job) listen() error {
	if len(j.Proxied) == 0 {
		return nil
	}
	if !j.Loopback {
		return errors.New("a proxy needs a network namespace")
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(s) }()
	err = unix.Bind(s, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = unix.Listen(s, unix.SOMAXCONN)
	}
	if err != nil {
		return os.NewSyscallError("listen", err)
	}
	at, err := unix.Getsockname(s)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	own, ok := at.(*unix.SockaddrInet4)
	if !ok {
		return errors.New("the proxy has no port")
	}
	for _, name := range j.Proxied {
		j.Env = append(j.Env, fmt.Sprintf("%s=http://127.0.0.1:%d", name, own.Port))
	}
	return os.NewSyscallError("sendmsg", unix.Sendmsg(statusFile, []byte("\n"), unix.UnixRights(s), nil, 0))
}

// Receive returns the socket that a copy has sent by its status socket, or nil and what it sent instead.
func Receive(status *os.File) (socket *os.File, sent []byte, err error) {
	raw, err := status.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	first, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	var n, more int
	readErr := raw.Read(func(fd uintptr) bool {
		n, more, _, _, err = unix.Recvmsg(int(fd), first, rights, unix.MSG_CMSG_CLOEXEC)
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	if err = errors.Join(readErr, err); err != nil || more == 0 {
		return nil, first[:max(n, 0)], err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:more])
	if err != nil {
		return nil, nil, err
	}
	for _, m := range messages {
		if fds, err := unix.ParseUnixRights(&m); err == nil && len(fds) == 1 {
			return os.NewFile(uintptr(fds[0]), "proxy"), first[:n], nil
		}
	}
	return nil, first[:n], nil
}

// unreached returns how often a process of this network namespace had no route to an address, or asked a name
// server of the loopback that does not exist.
func unreached() (total uint64) {
	const tables = 8 << 10 // bytes; the counters are at the beginning
	snmp := readOnce("/proc/self/net/snmp", make([]byte, tables))
	for _, of := range [][2]string{{"Ip:", "OutNoRoutes"}, {"Udp:", "NoPorts"}} {
		var names [][]byte
		for line := range bytes.Lines(snmp) {
			fields := bytes.Fields(line)
			if len(fields) == 0 || string(fields[0]) != of[0] {
				continue
			}
			for i, name := range names {
				if string(name) == of[1] && i < len(fields) {
					n, _ := strconv.ParseUint(string(fields[i]), 10, 62)
					total += n
				}
			}
			names = fields
		}
	}
	for line := range bytes.Lines(readOnce("/proc/self/net/snmp6", make([]byte, tables))) {
		fields := bytes.Fields(line)
		if len(fields) == 2 && (string(fields[0]) == "Ip6OutNoRoutes" || string(fields[0]) == "Udp6NoPorts") {
			n, _ := strconv.ParseUint(string(fields[1]), 10, 62)
			total += n
		}
	}
	return total
}
