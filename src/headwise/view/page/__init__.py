"""One self-contained HTML page that shows how a translation was made; it works from disk and without a network.

`contents.py` turns records into plain JSON, `evaluate.pages.document` puts JSON, style and scripts into one file. What
the page does with them is written in `assets/`: small ES modules, one for each view.
"""
