"""Experiments and teaching: the study of claims, tables of runs, the tutorial, the demo. Imported by the command line
alone.
"""

import headwise.pytorch  # noqa: F401 - attaches the C library for networks that are trained here with the core alone
