package cli

// lazySecrets gives what ${secret:NAME} stands for, also in a configuration that is only
// looked at. The service is made at the first use.
type lazySecrets struct{ app *app }

// Secret implements [config.SecretStore].
func (s lazySecrets) Secret(name string) (string, error) {
	kept, err := s.app.svc()
	if err != nil {
		return "", err
	}
	return kept.Secret(name)
}
