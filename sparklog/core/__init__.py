"""The words every other room uses; standard library only."""
