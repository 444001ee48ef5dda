"""Timed work. The only importer of torch; it never judges."""
