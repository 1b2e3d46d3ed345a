"""Inspection of models by hooks; nothing in `headwise.network` stores or returns attention weights."""
