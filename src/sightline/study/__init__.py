"""The claims made for attention, each measured: `sightline study`.

`claims.py` is the table; a claim's own file holds its sentence, its experiment, its figure and its verdict. `run.py`
does the work in units that are kept on disk, `report.py` writes it up. Nothing here is needed to train or translate.
"""
