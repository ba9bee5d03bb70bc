"""What comes from outside is contained: others' code is guarded, secrets are masked, text is escaped, Ctrl-C works."""
