"""The parts of the check of gradients."""
