"""A year of real flights through a log, step by step, with every total checked (`make demo`).

Files that only the children need import pyspark; those that print and check the demo do not.
"""
