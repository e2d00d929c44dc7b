package shell

// Trials reports whether a copy of this program that bwrap starts may mount, and join the namespaces of another one.
func Trials(bwrap string) (mounts, joins bool) { return trials(trialOf(bwrap)) }
