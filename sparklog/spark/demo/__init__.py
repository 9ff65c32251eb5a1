"""A year of real flights through a log, step by step, with every total checked (`make demo`).

Files that only the children need import pyspark; what tells and checks the story does not.
"""
