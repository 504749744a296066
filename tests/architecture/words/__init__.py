"""Plain words: phrases that a newcomer would have to translate, and a ratchet that counts them."""
