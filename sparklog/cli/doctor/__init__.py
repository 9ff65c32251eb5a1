"""The checks of `sparklog doctor`: of a machine, and of a root."""
