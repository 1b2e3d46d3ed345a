"""Several runs beside each other: which belong together (`runs`), what they translate test sets into (`hypotheses`),
their scores (`table`, written by `formats`), and how they learnt (`curves`). How a score is computed is in `evaluate`.
"""
