"""The file that holds programs, golden calls and signatures."""
