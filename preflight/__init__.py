"""preflight: can this node keep its GPU fed?"""

__version__ = "0.1.0"
