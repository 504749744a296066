"""``python -m torchyard`` is the ``torchyard`` command."""

from __future__ import annotations

from torchyard.cli import main

if __name__ == "__main__":
    main()
