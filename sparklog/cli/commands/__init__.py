"""The verbs of the command line, one module each; `sparklog.cli.main` lists them."""
