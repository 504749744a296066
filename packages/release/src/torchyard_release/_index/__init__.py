"""A package index: as a folder, as a server on the loopback, and as where files are uploaded."""
