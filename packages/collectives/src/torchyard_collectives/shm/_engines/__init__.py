"""What moves the bytes of a group: shared memory, and gloo between hosts."""
