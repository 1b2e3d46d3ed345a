"""Glossaries: how terms are to be translated, and what is to stay as it is."""
