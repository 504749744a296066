"""Built files, read: what each contains and says, and what it should."""
