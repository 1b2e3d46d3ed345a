"""A translator that is trained on several corpora by weights and temperature, or with general pairs between its own,
against forgetting (`data.weights`, `data.temperature`, `data.mix`).
"""

from typing import Any

from sightline.config.settings import RunConfig
from sightline.data.corpus import parse_corpora
from sightline.data.first_look import parse_pairs
from sightline.data.mixing import Mixture, Portion, drawn
from sightline.data.prepared import PreparedCorpus, prepare, spool
from sightline.data.side import Side
from sightline.errors import UserError
from sightline.tasks.job import TrainRequest, say


def mixed(
    request: TrainRequest, config: RunConfig, tokenizer: Side, own: PreparedCorpus, noted: dict[str, Any]
) -> Mixture:
    """The corpora of `request.train`, which lie in `own` one behind the other, each as often as it shall come, and
    those of `data.mix`; which these are is `noted`, so that a run goes on with the same.

    Raises:
        UserError: weights and corpora are not equally many; a corpus has nothing to train on, or cannot be read; links
            of words are to be learnt, which are those of pairs as they lie in the files.
    """
    data, names = config.data, [*map(str, parse_corpora(request.train))]
    if request.alignments:
        raise UserError("--alignments does not go with data.weights, data.temperature or data.mix: leave one out")
    weights = data.weights or (1.0,) * len(names)
    if len(weights) != len(names):
        named = f"--train names {len(names)} ({', '.join(names)})"
        raise UserError(f"data.weights = {list(weights)}: give one for each corpus, of which {named}")
    if len(own.kept) != len(names) or not all(own.kept):
        empty = [name for name, size in zip(names, own.kept, strict=False) if not size]
        raise UserError(f"{', '.join(empty or names)}: a corpus without a pair to train on has no share; leave it out")
    starts = [sum(own.kept[:i]) for i in range(len(names))]
    counts = drawn(own.kept, weights, data.temperature)
    shares = [Portion(own, *numbers) for numbers in zip(starts, own.kept, counts, strict=True)]
    if data.mix:
        general = prepare(
            spool(parse_pairs("data.mix", [*map(str.strip, data.mix.split(","))])),
            tokenizer,
            data,
            progress=request.show,
        )
        noted["mix_key"] = general.key
        count = round(sum(counts) * data.mix_share / (1 - data.mix_share))
        shares, names = [*shares, Portion(general, 0, len(general), count)], [*names, data.mix]
    for share, name in zip(shares, names, strict=True):
        times = share.drawn / share.size
        say(request, f"an epoch has {share.drawn:,} pairs of {name}, which has {share.size:,}: {times:.2f} times")
    return Mixture(shares)
