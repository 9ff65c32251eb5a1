"""What benchmarks share: the command, the plan, figures and targets, tables, and both clusters."""
