"""Encoded samples: where they come from. Fetch and decode are separate; nothing judges."""
