"""A layer of a decoder that decodes one token by two chains and its attention."""
