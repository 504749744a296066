"""Run the comparison: ``python -m benchmarks.language``."""

from benchmarks.language.comparison import main

if __name__ == "__main__":
    main()
