package models

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// foreignOwner reports whether a server of this machine, to which a connection from client has been made, belongs
// to another login user, and names that user. It looks at whoever listens there and at the server's end of the
// connection: the listener may be gone by now.
func foreignOwner(server, client netip.AddrPort) (owner string, foreign bool) {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue // not mounted: nobody knows whose it is
		}
		uids := socketOwners(bufio.NewScanner(f), server, client)
		_ = f.Close()
		for _, uid := range uids {
			if uid == os.Geteuid() {
				continue
			}
			if name, yes := readUsers().login(uid); yes {
				return name, true
			}
		}
	}
	return "", false
}

const (
	socketEstablished = "01"
	socketListens     = "0A"
)

// socketOwners are the owners of the sockets of a table of the kernel (proc_net_tcp(5))
// that listen at an address, or are the server's end of a connection from client.
func socketOwners(table *bufio.Scanner, server, client netip.AddrPort) (uids []int) {
	for table.Scan() {
		fields := strings.Fields(table.Text())
		if len(fields) < 8 {
			continue
		}
		local, ok := socketAddress(fields[1])
		remote, also := socketAddress(fields[2])
		if !ok || !also || local.Port() != server.Port() {
			continue
		}
		here := local.Addr() == server.Addr().Unmap()
		switch fields[3] {
		case socketListens:
			here = here || local.Addr().IsUnspecified()
		case socketEstablished:
			here = here && remote == netip.AddrPortFrom(client.Addr().Unmap(), client.Port())
		default:
			here = false
		}
		if uid, err := strconv.Atoi(fields[7]); here && err == nil {
			uids = append(uids, uid)
		}
	}
	return uids
}

// socketAddress reads ADDRESS:PORT of such a table: words of 32 bits in the machine's order, in hexadecimal digits.
func socketAddress(text string) (netip.AddrPort, bool) {
	host, digits, _ := strings.Cut(text, ":")
	port, err := strconv.ParseUint(digits, 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	bytes, err := hex.DecodeString(host)
	if err != nil || len(bytes)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for word := bytes; len(word) > 0; word = word[4:] {
		binary.BigEndian.PutUint32(word, binary.NativeEndian.Uint32(word))
	}
	addr, ok := netip.AddrFromSlice(bytes)
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), ok
}

// The users that systemd makes up for services, which nobody can log in as
// (systemd's "Users, Groups, UIDs and GIDs").
const (
	serviceUIDMin = 61184
	serviceUIDMax = 65519
)

// loginUsers are those that can log in: users from UID_MIN on (login.defs(5)) with a real shell.
type loginUsers struct {
	uidMin int
	users  map[int]loginUser
}

type loginUser struct{ name, shell string }

// readUsers reads the files of the system; one that cannot be read says nothing.
func readUsers() loginUsers {
	u := loginUsers{uidMin: 1000, users: map[int]loginUser{}}
	defs, _ := os.ReadFile("/etc/login.defs")
	for line := range strings.Lines(string(defs)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "UID_MIN" {
			if n, err := strconv.Atoi(f[1]); err == nil {
				u.uidMin = n
			}
		}
	}
	passwd, _ := os.ReadFile("/etc/passwd")
	for line := range strings.Lines(string(passwd)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) != 7 {
			continue
		}
		if uid, err := strconv.Atoi(f[2]); err == nil {
			u.users[uid] = loginUser{f[0], f[6]}
		}
	}
	return u
}

// login reports whether someone can log in as a user. One that the system's file does
// not have may come from a directory of people, and can.
func (u loginUsers) login(uid int) (name string, yes bool) {
	user, known := u.users[uid]
	switch {
	case uid < u.uidMin, !known && uid >= serviceUIDMin && uid <= serviceUIDMax:
		return "", false
	case !known:
		return fmt.Sprintf("user %d", uid), true
	}
	shell := user.shell[strings.LastIndexByte(user.shell, '/')+1:]
	return user.name, shell != "nologin" && shell != "false"
}
