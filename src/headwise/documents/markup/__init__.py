"""Markup, placeholders and codes inside a sentence: taken out before translation, and placed after it."""
