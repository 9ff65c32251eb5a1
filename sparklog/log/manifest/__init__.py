"""The objects of a partition: manifests, the view they give, how they change, pins, tombstones."""
