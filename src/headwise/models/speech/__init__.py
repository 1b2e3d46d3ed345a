"""Speech models: transcripts of recordings."""
