"""Suites of linear, topk, recurrent layers, foreach_map and captured graphs."""
