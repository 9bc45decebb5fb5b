"""Shared by the tests: nothing needs the network or a file outside the repository."""
