"""Everything that needs PyTorch beyond the paper's network: training, tasks, search, conversion, recording, export.

Nothing outside `core`, `pytorch` and `lab` imports torch. Models of `models` come here when a method needs it.
"""
