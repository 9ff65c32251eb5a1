"""The measures, a module for each kind. Every one takes systems and leaves figures and checks."""
