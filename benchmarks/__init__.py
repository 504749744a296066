"""Side-by-side benchmarks with stock torch, in one process, gated on correctness."""

__all__: list[str] = []
