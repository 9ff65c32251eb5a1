"""House rules as tests. Each rule is a plain function, shown to fail on a bad snippet first."""
