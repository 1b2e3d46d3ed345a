"""A validation whose work several processes share: each takes every N-th batch and text, and all get the figures.

What a translator is judged by is shared; other tasks are judged by every rank as a whole, and rank 0's figures count.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

from torch import nn

from sightline.data.batching import validation_batches
from sightline.data.corpus import Pair
from sightline.network.more_dropout import without
from sightline.tasks.job import Job
from sightline.tasks.translation import TranslationJob, bleu
from sightline.tasks.validation import FIRST
from sightline.training.ranks import Ranks
from sightline.training.step import validation_loss

Figures = dict[str, float]


class SharedValidation:
    """What ranks do of the validation of a translator.

    All look at the first `FIRST` texts, by which a search is bounded while nothing has been learnt: so what is searched
    is what one process would search.
    """

    def __init__(self, job: TranslationJob, network: nn.Module, ranks: Ranks) -> None:
        self._job, self._network, self._ranks = job, network, ranks
        count = min(len(job.valid), job.config.train.validate_bleu)
        self._pairs: list[Pair] = [job.searched(row) for row in range(count)]

    def share(self) -> dict[str, Any]:
        """This rank's sums, and the texts that it has searched for."""
        with without(self._network):
            sums = [0.0, 0.0]
            for batch in islice(self._batches(), self._ranks.rank, None, self._ranks.size):
                pad_id, targets = self._job.tokenizer.pad_id, batch.n_target_tokens
                loss = validation_loss(self._network, [batch], pad_id, self._ranks.device)
                sums = [sums[0] + loss * targets, sums[1] + targets]
            own = [*self._pairs[:FIRST], *self._pairs[FIRST:][self._ranks.rank :: self._ranks.size]]
            texts = self._job.texts(self._network, own, lambda count: None) if own else []
        return {"sums": sums, "texts": texts}

    def _batches(self) -> Any:
        job = self._job
        return validation_batches(job.valid, job.tokenizer, job.config.train.tokens_per_batch, job.noise(0))

    def merge(self, shares: list[Any]) -> Figures:
        """The figures of all shares, in the order of ranks."""
        nll, targets = (sum(share["sums"][i] for share in shares) for i in (0, 1))
        figures = {"loss": nll / max(1, targets)}
        if self._pairs:
            texts: list[str] = shares[0]["texts"][:FIRST] + [""] * (len(self._pairs) - FIRST)
            for rank, share in enumerate(shares):
                texts[FIRST + rank :: len(shares)] = share["texts"][FIRST:]
            figures["bleu"] = bleu(texts, self._pairs)
        return figures


def shared_validation(
    job: Job, network: nn.Module, ranks: Ranks
) -> tuple[Callable[[], Any] | None, Callable[[list[Any]], Figures] | None]:
    """What a rank does of a validation, and the figures of all shares; nothing of a task that has none to share."""
    if not isinstance(job, TranslationJob):
        return None, None
    shared = SharedValidation(job, network, ranks)
    return shared.share, shared.merge
