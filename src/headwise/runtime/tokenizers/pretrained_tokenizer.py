"""The tokenizer of a pretrained encoder-decoder: its vocabulary, with the special tokens of its family on each side.

Marian adds an end token to a text, BART also a start token, M2M-100 and NLLB put a language code first, mBART puts one
after the end token, and T5 expects an instruction in words. The decoder's start token is not the start token of a text.
`runtime.tokenizers.vocabulary` reads the vocabularies themselves.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headwise.contract import NEVER, SpecialIds
from headwise.errors import UserError
from headwise.runtime.search.candidates import CandidateTable
from headwise.runtime.tokenizers.languages import Languages
from headwise.runtime.tokenizers.vocabulary import Vocabulary, marks_around
from headwise.text.prepared.shortlist import Shortlist
from headwise.text.tokens.tokenizer import readable

WORD = re.compile(r"\S+")
UNKNOWN = "<unk>", "[UNK]"
BLANKS = " \u2581\u0120"  # the ways in which subword strings write a space


@dataclass(frozen=True)
class PretrainedTokenizer:
    """One side of a model's pairs; implements `headwise.text.tokens.pair_tokenizer.PairTokenizer`."""

    vocabulary: Vocabulary
    ids_of: Callable[[str], list[int]]  # of a text, with special tokens other than `bos_id` and `eos_id`
    special: SpecialIds
    sources: "PretrainedTokenizer | None" = None  # the tokenizer of sources; None: this one
    declared: Mapping[int, str] = field(default_factory=dict)
    fingerprint: str = ""
    vocab_size: int = 0  # of targets

    @property
    def pad_id(self) -> int:
        """The id of padding."""
        return self.special.pad_id

    @property
    def bos_id(self) -> int:
        """The decoder's start token."""
        return self.special.bos_id

    @property
    def eos_id(self) -> int:
        """The end token of a text."""
        return self.special.eos_id

    @property
    def unk_id(self) -> int:
        """The unknown token; `NEVER` if the vocabulary can spell every text."""
        return self.special.unk_id

    @property
    def source(self) -> "PretrainedTokenizer":
        """The tokenizer of source texts."""
        return self.sources or self

    @property
    def in_bytes(self) -> bool:
        """Whether subword strings are written in the byte alphabet."""
        return in_bytes(self.vocabulary)

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return self.ids_of(text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of many texts."""
        return [self.ids_of(text) for text in texts]

    def encode_with_starts(self, text: str) -> tuple[list[int], list[int]]:
        """`encode`, and for each token the index of the first character of its word.

        Not every vocabulary knows where in the text a token is, so a word's tokens are those that appear when the word
        is added to the text before it. Special tokens and trailing spaces get the length of the text.
        """
        ids, before, found = self.encode(text), len(self.encode("")), list(WORD.finditer(text))
        ends = [len(self.encode(text[: word.end()])) for word in found]
        starts = [*(word.start() for word in found), len(text)]
        return ids, [len(text) if i < before else starts[bisect_right(ends, i)] for i in range(len(ids))]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of ids, without special tokens."""
        return self.vocabulary.decode(list(tokens))

    def pieces(self, tokens: Iterable[int]) -> list[str]:
        """One readable string per id."""
        return pieces_of(self.vocabulary, tokens)

    def piece(self, token: int) -> str:
        """The subword string of an id, with a space first if it starts a word; empty if there is none."""
        return piece_of(self.vocabulary, token)

    def is_special(self, token: int) -> bool:
        """Whether an id decodes to nothing although its subword string is not blank."""
        return bool(self.piece(token).strip(BLANKS)) and not self.decode([token])


def shortlist_candidates(found: Shortlist, tokenizer: PretrainedTokenizer) -> CandidateTable:
    """A shortlist for the search. With two vocabularies, tokens can be copied if both have the same string."""
    read, written = tokenizer.source.vocabulary, tokenizer.vocabulary
    if read is written:
        return CandidateTable(found.frequent, found.likely)
    names = map(read.piece_of, range(len(found.likely)))
    same = [i if name and (i := written.id_of(name)) is not None else found.frequent[0] for name in names]
    return CandidateTable(found.frequent, np.c_[found.likely, same], tokenizer.vocab_size)


def pieces_of(vocabulary: Vocabulary, tokens: Iterable[int]) -> list[str]:
    """One readable string per id."""
    found = [piece_of(vocabulary, token) or f"<{token}>" for token in tokens]
    return [readable(piece) for piece in found] if in_bytes(vocabulary) else found


def piece_of(vocabulary: Vocabulary, token: int) -> str:
    """The subword string of an id. In BERT's vocabularies `##` marks continuations; here a space marks word starts."""
    piece = vocabulary.piece_of(token) or ""
    if in_bytes(vocabulary) or vocabulary.id_of("##s") is None or not vocabulary.decode([token]):
        return piece
    return piece.removeprefix("##") if piece.startswith("##") else f"\u2581{piece}"


def in_bytes(vocabulary: Vocabulary) -> bool:
    """Whether subword strings are written in the byte alphabet, in which the space is `\u0120`."""
    return vocabulary.id_of("\u0120") is not None


def encoder_special_ids(pad_id: int, bos_id: int, eos_id: int) -> SpecialIds:
    """The special tokens of texts that are only read."""
    return SpecialIds(pad_id, bos_id, eos_id, NEVER)


def pretrained_tokenizer(
    languages: Languages,
    special: SpecialIds,
    source_language: str,
    target_language: str,
    origin: str = "",
    vocab_size: int = 0,
    instruction: str = "",
) -> PretrainedTokenizer:
    """The tokenizer of a model's targets; its `source` is that of source texts.

    Args:
        languages: of the model; holds its vocabulary.
        special: the ids of its generation_config.json.
        source_language, target_language: the model's own codes; "" if it needs none.
        origin: fingerprint of the vocabulary's files.
        vocab_size: of targets.
        instruction: text in front of every source text.

    Raises:
        UserError: the vocabulary adds no end token, or the model's files name no start token.
    """
    vocabulary = languages.vocabulary
    written, special = vocabulary.written or vocabulary, languages.special(special, target_language)
    if NEVER in (special.bos_id, special.eos_id) or (not vocabulary.encode("") and vocabulary.ends_texts):
        raise UserError("the model's files name no start token of outputs, or no end token of texts")

    def whole(text: str) -> list[int]:
        return languages.encode(instruction + text, source_language, target_language)

    ends, forced = whole("")[-1:] if vocabulary.ends_texts else [], list(special.forced)
    unknown = next((i for name in UNKNOWN if (i := written.id_of(name)) is not None), NEVER)
    source_ids = encoder_special_ids(special.pad_id, special.bos_id, (ends or [special.eos_id])[0])

    def source(text: str) -> list[int]:
        ids = whole(text)
        return ids[: len(ids) - len(ends)]

    sources = PretrainedTokenizer(vocabulary, source, source_ids, declared=vocabulary.declared)
    before, behind = marks_around(written.encode(""), written.encode("a"))

    def target(text: str) -> list[int]:
        ids = written.encode(text)
        bare = ids[before if languages.coded else 0 : len(ids) - behind]
        return bare if bare[:1] == forced else [*forced, *bare]

    ids = [special.bos_id, special.eos_id, *forced]
    own = "/".join([origin, source_language, target_language, *map(str, ids)])
    return PretrainedTokenizer(
        written,
        target,
        replace(special, source_end=tuple(ends), unk_id=unknown),
        sources,
        fingerprint=own,
        vocab_size=vocab_size,
    )
