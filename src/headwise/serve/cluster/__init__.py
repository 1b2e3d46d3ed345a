"""Distribution over the processes of one or more machines by Ray: translation, hyperparameter sweeps, server replicas.

Ray starts and monitors processes; they run the same code as without it. Optional dependency: `pip install
"headwise[ray]"`. See `headwise.pytorch.training` for training one model on several devices.
"""
