"""One implementation before one law: memory, time, threads, tangents, what it leaves behind."""
