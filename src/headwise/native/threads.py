"""Threads of the compiled library within a batch (`pool.c`)."""

from headwise.native import library as c


def use_threads(count: int) -> None:
    """How many threads the library's calls of this Python thread may use from now on; 1 at first.

    They share matrix products; results are the same. While another thread uses them, calls compute alone.
    """
    assert count > 0
    if found := c.library():
        found.headwise_set_threads(count)
