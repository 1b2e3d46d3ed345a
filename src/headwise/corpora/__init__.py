"""Corpus tools: checks, back-translation and distillation."""
