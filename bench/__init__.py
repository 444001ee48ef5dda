"""The numbers that the README claims, measured: `python -m bench` (see `bench.__main__`)."""
