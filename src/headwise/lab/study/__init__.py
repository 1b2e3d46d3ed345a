"""`headwise study`: measurements of claims made for attention.

`claims.py` is the table of claims; each has a module with its sentence, experiment, figures and verdict. `run.py`
measures in units that are stored on disk, `report.py` writes the report. Training and translating do not need this.
"""
