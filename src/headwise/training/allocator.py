"""One allocator setting, worth more than any other single change to a CPU training step.

glibc gives every large block back to the system when it is freed and fetches it anew at the next step, so each tensor
of the size of the logits is paid for in page faults (measured in `benchmarks/`). Here freed memory stays with the
process: faster, and the process keeps the size of its largest moment. `HEADWISE_KEEP_MEMORY=0` opts out.
"""

import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed blocks; False where there is no glibc or the user opted out."""
    if os.environ.get("HEADWISE_KEEP_MEMORY") == "0":
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, 1 << 30)) and bool(mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
