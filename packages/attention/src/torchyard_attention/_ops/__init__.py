"""The ops as torch sees them: registration, fakes, gradients, transforms."""
