package jail

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// network joins the network namespace of the job, for the calling thread, and sends the namespaces of the job and the
// socket for the proxy to the process that started the copy, by the status socket.
func (j *Job) network() error {
	if j.Join {
		if err := unix.Setns(networkFile, unix.CLONE_NEWNET); err != nil {
			return os.NewSyscallError("setns", err)
		}
	}
	var files []int
	if j.Shares {
		for _, name := range []string{"user", "net"} {
			file, err := unix.Open("/proc/self/ns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return os.NewSyscallError("open", err)
			}
			files = append(files, file)
		}
	}
	if len(j.Proxied) > 0 {
		socket, err := j.listen()
		if err != nil {
			return err
		}
		files = append(files, socket)
	}
	if len(files) == 0 {
		return nil
	}
	err := os.NewSyscallError("sendmsg", unix.Sendmsg(statusFile, []byte("\n"), unix.UnixRights(files...), nil, 0))
	for _, file := range files {
		_ = unix.Close(file)
	}
	return err
}

// listen returns the socket on which the programs of the job reach the proxy. It belongs to the network namespace of
// the job, whichever process has it open.
func (j *Job) listen() (int, error) {
	if !j.Loopback {
		return 0, errors.New("a proxy needs a network namespace")
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	err = unix.Bind(s, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = unix.Listen(s, unix.SOMAXCONN)
	}
	if err != nil {
		return 0, os.NewSyscallError("listen", err)
	}
	at, err := unix.Getsockname(s)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	own, ok := at.(*unix.SockaddrInet4)
	if !ok {
		return 0, errors.New("the proxy has no port")
	}
	for _, name := range j.Proxied {
		j.Env = append(j.Env, fmt.Sprintf("%s=http://127.0.0.1:%d", name, own.Port))
	}
	return s, nil
}

// maxSent bounds the files that a copy sends.
const maxSent = 3

// Receive returns the files that a copy has sent by its status socket, or none and the data that it sent instead.
func Receive(status *os.File) (files []*os.File, sent []byte, err error) {
	raw, err := status.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	first, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4*maxSent))
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
		fds, _ := unix.ParseUnixRights(&m)
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "sent"))
		}
	}
	return files, first[:n], nil
}

// failures returns how often a process of this network namespace had no route to an address, or asked a name
// server of the loopback that does not exist, and how often a connection to a port of the loopback was refused.
func failures() (unreached, refused uint64) {
	const tables = 8 << 10 // bytes; the counters are at the beginning
	snmp := readOnce("/proc/self/net/snmp", make([]byte, tables))
	for of, total := range map[[2]string]*uint64{
		{"Ip:", "OutNoRoutes"}: &unreached, {"Udp:", "NoPorts"}: &unreached, {"Tcp:", "AttemptFails"}: &refused,
	} {
		var names [][]byte
		for line := range bytes.Lines(snmp) {
			fields := bytes.Fields(line)
			if len(fields) == 0 || string(fields[0]) != of[0] {
				continue
			}
			for i, name := range names {
				if string(name) == of[1] && i < len(fields) {
					n, _ := strconv.ParseUint(string(fields[i]), 10, 62)
					*total += n
				}
			}
			names = fields
		}
	}
	for line := range bytes.Lines(readOnce("/proc/self/net/snmp6", make([]byte, tables))) {
		fields := bytes.Fields(line)
		if len(fields) == 2 && (string(fields[0]) == "Ip6OutNoRoutes" || string(fields[0]) == "Udp6NoPorts") {
			n, _ := strconv.ParseUint(string(fields[1]), 10, 62)
			unreached += n
		}
	}
	return unreached, refused
}
