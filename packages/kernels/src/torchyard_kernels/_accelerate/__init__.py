"""accelerate: a model's layers on packed weights."""
