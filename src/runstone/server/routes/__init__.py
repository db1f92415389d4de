"""One module per surface; each gives a list of routes."""
