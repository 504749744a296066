"""Run the comparison: ``python -m benchmarks.models``."""

import sys

from benchmarks.models.comparison import main

if __name__ == "__main__":
    sys.exit(main())
