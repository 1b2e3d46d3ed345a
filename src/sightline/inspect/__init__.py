"""Seeing inside a model from outside of it: nothing in `sightline.model` stores or returns attention weights."""
