package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/toolcrib/toolcrib/store"
)

// networkFileSystems share files between machines, which do not share the memory that the write-ahead
// log needs (https://www.sqlite.org/wal.html). FUSE is judged by the file system behind it: many of
// them are local.
var networkFileSystems = []string{
	"afs", "afpfs", "ceph", "cifs", "coda", "gfs", "gfs2", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb2", "smb3",
	"smbfs", "webdav", "fuse.ceph", "fuse.ceph-fuse", "fuse.curlftpfs", "fuse.davfs", "fuse.gcsfuse", "fuse.glusterfs",
	"fuse.goofys", "fuse.gvfsd-fuse", "fuse.rclone", "fuse.s3fs", "fuse.smbnetfs", "fuse.sshfs",
}

// checkFileSystem rejects a database on a network file system before anything is created there. An
// unknown file system is accepted.
func checkFileSystem(path string, kind func(string) (string, error)) error {
	there := filepath.Dir(path)
	for {
		if _, err := os.Stat(there); !errors.Is(err, fs.ErrNotExist) || there == filepath.Dir(there) {
			break
		}
		there = filepath.Dir(there)
	}
	if real, err := filepath.EvalSymlinks(there); err == nil {
		there = real
	}
	name, err := kind(there)
	if err == nil && slices.Contains(networkFileSystems, name) {
		return &store.Error{Kind: store.ErrNetwork, Path: path, Err: fmt.Errorf("%s is on %s", there, name)}
	}
	return nil
}
