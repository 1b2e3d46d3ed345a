"""Comparison of runs: groups of runs (`runs`), their translations of test sets (`hypotheses`), scores (`table`, written
by `formats`), and learning curves (`curves`). Scores are computed in `evaluate`.
"""
