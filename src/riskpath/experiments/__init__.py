"""One file for each result of the paper."""
