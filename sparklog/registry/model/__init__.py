"""The words of a registry: subjects, schemas as they are stored, and refusals."""
