"""Reads the node: files under an injectable root and system calls. Never judges."""
