"""A cache of translated sentences of one model, of which the least recently used are dropped.

A sentence has the same translation alone and in any batch, so a cached one is what the model would give. See `batching`
for the queue, which asks the cache first.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

MOST_CHARACTERS = 2000  # of a cached sentence, for bounded memory


class SentenceCache:
    """Results by text and options."""

    def __init__(
        self,
        size: int,
        accepts: Callable[[Any], bool] = lambda options: True,
        looked_up: Callable[[bool], None] = lambda is_hit: None,
    ) -> None:
        """`accepts` says whether sentences with these options are cached; `looked_up` is called for each of them."""
        self._size, self._accepts, self._looked_up = size, accepts, looked_up
        self._results: OrderedDict[tuple[str, Hashable], Any] = OrderedDict()  # most recently used last

    def __len__(self) -> int:
        return len(self._results)

    def get(self, text: str, options: Hashable) -> Any:
        """The result of a sentence; None if it is not known."""
        if not self._holds(text, options):
            return None
        found = self._results.get((text, options))
        self._looked_up(found is not None)
        if found is not None:
            self._results.move_to_end((text, options))
        return found

    def put(self, text: str, options: Hashable, result: Any) -> None:
        """Keep a result."""
        if self._holds(text, options):
            self._results[text, options] = result
            if len(self._results) > self._size:
                self._results.popitem(last=False)

    def clear(self) -> None:
        """Forget all results, because the model may change."""
        self._results.clear()

    def _holds(self, text: str, options: Hashable) -> bool:
        return self._size > 0 and len(text) <= MOST_CHARACTERS and self._accepts(options)
