"""WholeText texts: taken apart, their sentences put into their model's line, and joined again.

Not here: HTTP (`routes`) and files (`files`).
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from sightline.serve.documents import Taken, take_apart
from sightline.serve.served import Offer, Rendering, Wish


@dataclass(frozen=True)
class WholeText:
    """A text, translated."""

    taken: Taken
    sentences: tuple[Rendering, ...]

    @property
    def text(self) -> str:
        """The translation."""
        return self.taken.joined([one.text for one in self.sentences])

    def alternatives(self, count: int) -> list[str]:
        """Other translations: number n has the n-th best of every sentence, or the last that there is."""
        ranked = [(one.text, *(text for text, _ in one.alternatives)) for one in self.sentences]
        texts = [self.taken.joined([texts[min(n, len(texts) - 1)] for texts in ranked]) for n in range(1, count + 1)]
        return [text for n, text in enumerate(texts) if text != self.text and text not in texts[:n]]

    @property
    def score(self) -> float:
        """The mean of the sentences'."""
        return sum(one.score for one in self.sentences) / max(len(self.sentences), 1)


async def translated(offer: Offer, texts: Sequence[str], wish: Wish, is_html: bool = False) -> list[WholeText]:
    """Each text translated; all their sentences stand in line together.

    Raises:
        UserError: nobody here translates between these languages, or a setting makes no sense.
        Busy: too many sentences are in line.
    """
    model, taken = offer.find(wish.source, wish.target), [take_apart(text, is_html) for text in texts]
    assert model.line, "it takes sentences from when the server starts"
    sentences = [sentence for one in taken for sentence in one.sentences]
    found = iter(await model.line.ask(sentences, wish, model.hypotheses(wish)))
    return [WholeText(one, tuple(next(found) for _ in one.sentences)) for one in taken]


async def streamed(
    offer: Offer, texts: Sequence[str], wish: Wish
) -> AsyncGenerator[tuple[int, Rendering | WholeText], None]:
    """Every sentence as soon as it and those before it are there, and every text when it is whole, with its number."""
    model, taken = offer.find(wish.source, wish.target), [take_apart(text) for text in texts]
    assert model.line, "it takes sentences from when the server starts"
    sentences = [sentence for one in taken for sentence in one.sentences]
    async with aclosing(model.line.answers(sentences, wish, model.hypotheses(wish))) as answers:
        for number, one in enumerate(taken):
            found: list[Any] = []
            for _ in one.sentences:
                found.append(await anext(answers))
                yield number, found[-1]
            yield number, WholeText(one, tuple(found))


async def unless_gone(work: Any, gone: Any) -> Any:
    """What `work` gives, unless `gone` ends first: then the work is cancelled, and the answer is None."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(gone)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return tasks[0].result() if tasks[0].done() else None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
