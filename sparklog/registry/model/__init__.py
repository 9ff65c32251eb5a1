"""The values of the registry: schemas, the names of subjects, and errors."""
