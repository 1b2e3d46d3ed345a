"""`sightline check-corpus`: what is in parallel files, and what is wrong with them, as text and as one HTML page.

`characters.py` judges one text, `count.py` walks through files, `findings.py` says what is wrong, `report.py` and
`page.py` write it down. What other stages judge is asked of them: why training drops a pair (`data/prepared.py`), when
two sentences are the same (`data/sentences.py`), what looks wrong at first sight (`data/first_look.py`).
"""
