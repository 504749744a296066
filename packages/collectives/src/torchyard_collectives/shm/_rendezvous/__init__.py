"""How ranks find one another."""
