"""Denoising pre-training (BART, arXiv:1910.13461): plain text with words masked in, the text itself out.

The first stage of a translator for whom there is more text than pairs: encoder and decoder learn both languages from
lines that need no translation, and `sightline train --init` goes on from them with pairs. The network, trainer and
objective are a translator's; here are the texts, the noise on what is read (`data/noise.py`) and what `sightline.load`
makes of such a model. Nothing tells the decoder the language: the words that are left do. A published T5 or BART goes
on with running text (`corruption`).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sightline.config.settings import RunConfig
from sightline.data.arranging import Noise
from sightline.data.corpus import Corpus, plain_texts
from sightline.data.noise import MASK, Infilling
from sightline.data.prepared import learn_tokenizer, spool
from sightline.data.rows import Pair
from sightline.data.tokenizer import Tokenizer
from sightline.errors import UserError
from sightline.tasks.job import TrainRequest, choose_tokenizer, held_out, hold_out
from sightline.tasks.translation import TranslationJob, completed, prepare_both


class DenoisingJob(TranslationJob):
    """See `sightline.tasks.job.Job`. BLEU compares texts that were restored with what they were."""

    def noise(self, seed: int) -> Noise:
        assert isinstance(self.tokenizer, Tokenizer)
        return Infilling(self.tokenizer, seed)

    def searched(self, row: int) -> Pair:
        text, _ = self.valid.text(row)
        return self.tokenizer.decode(self.noise(0)(self.valid.src(row), 0, row)), text


def denoising_job(request: TrainRequest, config: RunConfig, folder: Path) -> DenoisingJob:
    """Read, tokenise and check all the texts."""
    if config.data.block_length != RunConfig().data.block_length:
        raise UserError(
            f"data.block_length = {config.data.block_length}: a model of ours is trained on lines, data.max_length "
            "pieces long at most; running text is for --init of a T5 or a BART"
        )
    files = plain_texts(request.train)
    parts = hold_out(request, files)
    files = spool(files)
    train, valid = (parts.train, [parts.valid]) if parts else (files, spool(plain_texts(request.valid)))
    tokenizer = _tokenizer(request, config, folder, train)
    prepared, validating, corpus = prepare_both(request, config, tokenizer, train, valid, "texts")
    config, about = completed(request, config, folder, tokenizer), {"corpus": {**corpus, **held_out(parts)}}
    return DenoisingJob(config, tokenizer, about, prepared, validating, None, "", None, request.show)


def _tokenizer(request: TrainRequest, config: RunConfig, folder: Path, train: Sequence[Corpus]) -> Tokenizer:
    """One that has a piece for the mask."""
    given = config.data.tokenizer
    if given and MASK not in Tokenizer.load(given).declared.values():
        raise UserError(
            f"data.tokenizer = {given}: has no piece {MASK}, with which words are masked; leave it out, or name the "
            f"tokenizer of a model that was trained with --special '{MASK}'"
        )
    special = list(dict.fromkeys([*request.special, MASK]))

    def learn() -> Tokenizer:
        return learn_tokenizer(train, config.data, special, sources_only=True)

    return choose_tokenizer(replace(request, special=special), config, folder, learn)
