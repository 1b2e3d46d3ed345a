"""A translation task that needs no data: English dates and times into four languages, made up on the spot."""
