package shell

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// gitSteering returns the parts of a repository that control git. They are protected even from git.
func gitSteering() []string {
	return []string{
		"config", "config.worktree", "hooks", "info", "objects/info", "commondir", "gitdir", "modules",
		"worktrees",
	}
}

const maxGitConfig = 256 << 10 // bytes of one file

// GitConfig returns the texts of the configuration of the workspace's repository. gap names a part of the
// repository that may give git other settings, or is "".
func (f files) GitConfig() (texts []string, gap string) {
	dir := filepath.Join(f.w.Dir, ".git")
	info, err := os.Lstat(dir)
	switch {
	case os.IsNotExist(err):
		return nil, ""
	case err != nil || !info.IsDir():
		return nil, ".git is not a folder"
	}
	if _, err := os.Lstat(filepath.Join(dir, "commondir")); err == nil {
		return nil, ".git/commondir"
	}
	// A submodule has a configuration of its own, which git reads when it enters it.
	for _, name := range []string{".gitmodules", filepath.Join(".git", "modules")} {
		if _, err := os.Lstat(filepath.Join(f.w.Dir, name)); !os.IsNotExist(err) {
			return nil, filepath.ToSlash(name)
		}
	}
	for _, name := range []string{"config", "config.worktree"} {
		file, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if os.IsNotExist(err) {
			continue
		}
		var text []byte
		if err == nil {
			text, err = io.ReadAll(io.LimitReader(file, maxGitConfig+1))
			_ = file.Close()
		}
		if err != nil || len(text) > maxGitConfig {
			return texts, ".git/" + name + " cannot be read whole"
		}
		texts = append(texts, string(text))
	}
	return texts, ""
}

// gitEnvironment returns variables that confine git to the repository in dir, and disable hooks,
// pagers, editors and prompts.
func gitEnvironment(dir string) []string {
	return []string{
		"GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_PAGER=cat", "GIT_EDITOR=:",
		"GIT_SEQUENCE_EDITOR=:",
		"GIT_CEILING_DIRECTORIES=" + filepath.Dir(dir), "GIT_CONFIG_COUNT=6",
		"GIT_CONFIG_KEY_0=core.hooksPath", "GIT_CONFIG_VALUE_0=" + os.DevNull,
		"GIT_CONFIG_KEY_1=core.fsmonitor", "GIT_CONFIG_VALUE_1=false",
		"GIT_CONFIG_KEY_2=diff.ignoreSubmodules", "GIT_CONFIG_VALUE_2=dirty",
		"GIT_CONFIG_KEY_3=safe.bareRepository", "GIT_CONFIG_VALUE_3=explicit",
		"GIT_CONFIG_KEY_4=gc.auto", "GIT_CONFIG_VALUE_4=0",
		"GIT_CONFIG_KEY_5=maintenance.auto", "GIT_CONFIG_VALUE_5=false",
	}
}
