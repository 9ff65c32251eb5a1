"""The measures, a module for each kind. Every one takes sides and leaves figures and checks."""
