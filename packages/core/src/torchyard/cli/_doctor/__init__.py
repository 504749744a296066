"""``torchyard doctor``: checks of this installation."""
