"""Shared parts of benchmarks: command, plan, figures and targets, tables, and both clusters."""
