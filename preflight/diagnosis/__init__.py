"""Tables that say what a failure means: rows of data, and the functions that look them up."""
