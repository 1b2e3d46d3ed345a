"""`headwise check-corpus`: statistics and problems of parallel files, as text and as an HTML page.

`characters.py` checks one text, `count.py` reads the files, `findings.py` collects problems, `report.py` and `page.py`
write them. Shared with other stages: why training drops a pair (`text/tokens/tokenize_pairs.py`), when two sentences
are the same (`text/files/sentences.py`), and quick checks (`text/files/file_checks.py`).
"""
