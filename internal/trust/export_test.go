package trust

import (
	"fmt"
	"path/filepath"
)

// Trust trusts what dir brings now, whether somebody has seen it or not. What cannot be
// read is not trusted and is an error.
func (s Store) Trust(dir string, names ...string) ([]File, error) {
	if len(names) == 0 {
		names = Names()
	}
	root, err := realPath(dir)
	if err != nil {
		return nil, err
	}
	files := make([]File, len(names))
	for i, name := range names {
		files[i] = look(root, name)
		if files[i].Problem != "" {
			return nil, fmt.Errorf("%s cannot be trusted: it %s", filepath.Join(dir, name), files[i].Problem)
		}
	}
	if err := s.TrustFiles(dir, files); err != nil {
		return nil, err
	}
	for i := range files {
		if files[i].State != Absent {
			files[i].State = Trusted
		}
	}
	return files, nil
}
