"""Glossaries: required translations of terms, and text that must stay unchanged."""
