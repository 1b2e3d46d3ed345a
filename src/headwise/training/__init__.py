"""Training: loss, schedule, optimiser, checkpoints, and the one loop every architecture is trained by (section 5).

Knows any model that keeps the contract of `headwise.network.transformer`; builds none.
"""
