"""Inspection of models by hooks; nothing in `sightline.network` stores or returns attention weights."""
