"""The formats of `headwise export` that need torch."""

from headwise.pytorch.export.run import export_model

__all__ = ["export_model"]
