"""Built files: their contents and metadata, compared with what train.toml declares."""
