"""Keys, the signed manifest, and which of a candidate's records are trusted."""
