"""HTTP: routes, streams, limits, credentials. What a protocol says is in `protocols`, what happens is in `engine`."""
