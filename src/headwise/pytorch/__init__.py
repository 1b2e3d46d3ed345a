"""Everything that needs PyTorch beyond the paper's network: training, tasks, search, conversion, recording, export.

Nothing outside `core`, `pytorch` and `lab` imports torch. Models of `models` come here when a method needs it.
"""

from headwise.core import attach_library
from headwise.runtime.native.library import training_library

attach_library(training_library)
