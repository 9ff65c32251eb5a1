"""Brokers as Spark tasks: the driver's loop, the task, the channel between them."""
