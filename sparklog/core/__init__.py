"""Values, settings and errors that all other packages use; standard library only."""
