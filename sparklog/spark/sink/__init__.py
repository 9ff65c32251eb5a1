"""The data source's writes: tasks stage segments, the driver publishes them."""
