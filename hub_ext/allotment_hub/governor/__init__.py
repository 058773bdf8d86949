"""The shell around the rules: load, apply a command, decide, commit, answer, act, reconcile."""
