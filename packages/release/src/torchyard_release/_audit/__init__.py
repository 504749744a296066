"""After the release: the index against what was signed, and the search for a commit."""
