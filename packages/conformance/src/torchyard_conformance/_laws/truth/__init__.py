"""What a plugin says of itself is true."""
