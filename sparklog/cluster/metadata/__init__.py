"""The metadata image, its records and snapshots, and the changes that the metadata log takes."""
