"""Run the comparison: ``python -m benchmarks.quantised``."""

from benchmarks.quantised.comparison import main

if __name__ == "__main__":
    main()
