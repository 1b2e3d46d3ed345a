"""Corpora before a training: surveying them, and making them by back-translation and distillation."""
