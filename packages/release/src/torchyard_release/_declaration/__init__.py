"""The declaration: train.toml as data, with the packages in the order of their requirements."""
