"""GitHub Actions' workflows, generated from train.toml."""
