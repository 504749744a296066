"""One certification: laws run by pytest in a process of their own, which may crash."""
