"""Cold starts of compiled models: without a cache, with torch's bundle, with torchyard's."""
