"""File formats of documents and catalogues, a module each: their texts, and the file with other texts."""
