package folderid

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Of returns an identifier that distinguishes a folder from another one that has replaced it.
func Of(path string) (id string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var i syscall.ByHandleFileInformation
	if err := syscall.GetFileInformationByHandle(syscall.Handle(f.Fd()), &i); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d:%d@%d", i.FileIndexHigh, i.FileIndexLow, i.CreationTime.Nanoseconds()), nil
}
