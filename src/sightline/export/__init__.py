"""Sightline's translation models for other programs: Hugging Face transformers, CTranslate2, ONNX.

One module for each format, which writes a folder and can translate with what it wrote; `run` checks one against the
other before anything stands where it was asked for.
"""
