"""One self-contained HTML page that shows a translation from inside; it opens from disk and never asks the network.

`contents.py` turns records into plain JSON, `document.py` puts JSON, style and scripts into one file. What the page
does with them is written in `assets/`: small ES modules, one for each view.
"""
