"""Other projects' file formats of models, read as arrays and settings."""
