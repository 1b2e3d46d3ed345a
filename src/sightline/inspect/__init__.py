"""Seeing inside a model from outside of it: nothing in `sightline.network` stores or returns attention weights."""
