"""Package indexes: a folder, a server on the loopback, and a client that uploads."""
