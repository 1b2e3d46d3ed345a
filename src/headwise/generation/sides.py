"""A published model's vocabulary as the tokenizer of pairs, each side with the marks its family puts there.

What stands around a text is the family's: Marian has an end mark behind it, BART a start mark before it too, M2M-100
and NLLB a language's code before it, mBART one behind its end mark, and a T5 is asked in words. What the decoder begins
with is not the start mark of a text. Not here: the vocabularies themselves (`checkpoint.vocabulary`).
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headwise.checkpoint.vocabulary import Vocabulary, marks_around
from headwise.contract import NEVER, SpecialIds
from headwise.data.shortlist import Shortlist
from headwise.data.tokenizer import readable
from headwise.decode.candidates import CandidateTable
from headwise.errors import UserError
from headwise.generation.languages import CODED, Languages

WORD = re.compile(r"\S+")
UNKNOWN = "<unk>", "[UNK]"
BLANKS = " \u2581\u0120"  # how pieces write a blank


@dataclass(frozen=True)
class FamilySide:
    """One side of a model's pairs (`headwise.data.side.Side`)."""

    vocabulary: Vocabulary
    ids_of: Callable[[str], list[int]]  # a text with its marks, but for `bos_id` and `eos_id`
    special: SpecialIds
    sources: "FamilySide | None" = None  # the other side; None: this is it
    declared: Mapping[int, str] = field(default_factory=dict)
    fingerprint: str = ""
    vocab_size: int = 0  # of what is written

    @property
    def pad_id(self) -> int:
        """The id of padding."""
        return self.special.pad_id

    @property
    def bos_id(self) -> int:
        """What the decoder begins with."""
        return self.special.bos_id

    @property
    def eos_id(self) -> int:
        """What stands behind a text."""
        return self.special.eos_id

    @property
    def unk_id(self) -> int:
        """What text is cut into that the vocabulary does not know; `NEVER` where it spells everything."""
        return self.special.unk_id

    @property
    def source(self) -> "FamilySide":
        """The side of texts to translate."""
        return self.sources or self

    @property
    def in_bytes(self) -> bool:
        """Whether pieces are spelt in the byte alphabet."""
        return in_bytes(self.vocabulary)

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return self.ids_of(text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of many texts."""
        return [self.ids_of(text) for text in texts]

    def encode_with_starts(self, text: str) -> tuple[list[int], list[int]]:
        """`encode`, and the character that each piece's word begins with; marks and blanks at the end belong to none.

        Vocabularies do not all say where in the text a piece stands. A word's pieces are those that it adds.
        """
        ids, before, found = self.encode(text), len(self.encode("")), list(WORD.finditer(text))
        ends = [len(self.encode(text[: word.end()])) for word in found]
        starts = [*(word.start() for word in found), len(text)]
        return ids, [len(text) if i < before else starts[bisect_right(ends, i)] for i in range(len(ids))]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of ids, without marks."""
        return self.vocabulary.decode(list(tokens))

    def pieces(self, tokens: Iterable[int]) -> list[str]:
        """One readable string per id."""
        return pieces_of(self.vocabulary, tokens)

    def piece(self, token: int) -> str:
        """The piece of an id, with a blank before one that begins a word; empty where there is none."""
        return piece_of(self.vocabulary, token)

    def is_mark(self, token: int) -> bool:
        """Whether an id is written as nothing, though its piece is more than blanks."""
        return bool(self.piece(token).strip(BLANKS)) and not self.decode([token])


def offered_by(found: Shortlist, side: FamilySide) -> CandidateTable:
    """A shortlist ready for use; of two vocabularies what is copied is what is called the same."""
    read, written = side.source.vocabulary, side.vocabulary
    if read is written:
        return CandidateTable(found.frequent, found.likely)
    names = map(read.piece_of, range(len(found.likely)))
    same = [i if name and (i := written.id_of(name)) is not None else found.frequent[0] for name in names]
    return CandidateTable(found.frequent, np.c_[found.likely, same], side.vocab_size)


def pieces_of(vocabulary: Vocabulary, tokens: Iterable[int]) -> list[str]:
    """One readable string per id."""
    found = [piece_of(vocabulary, token) or f"<{token}>" for token in tokens]
    return [readable(piece) for piece in found] if in_bytes(vocabulary) else found


def piece_of(vocabulary: Vocabulary, token: int) -> str:
    """The piece of an id; of BERT's, which mark what goes on with a word, with a blank before what begins one."""
    piece = vocabulary.piece_of(token) or ""
    if in_bytes(vocabulary) or vocabulary.id_of("##s") is None or not vocabulary.decode([token]):
        return piece
    return piece.removeprefix("##") if piece.startswith("##") else f"\u2581{piece}"


def in_bytes(vocabulary: Vocabulary) -> bool:
    """Whether pieces are spelt in the byte alphabet, where a blank has a letter of its own."""
    return vocabulary.id_of("\u0120") is not None


def marks_of_side(pad_id: int, bos_id: int, eos_id: int) -> SpecialIds:
    """The ids of a side that nothing is searched for on."""
    return SpecialIds(pad_id, bos_id, eos_id, NEVER)


def target_side(
    languages: Languages,
    special: SpecialIds,
    source_language: str,
    target_language: str,
    origin: str = "",
    vocab_size: int = 0,
    instruction: str = "",
) -> FamilySide:
    """The side that a model writes, with the one that it reads beside it.

    Args:
        languages: of the model, which knows its vocabulary.
        special: the ids of its generation_config.json.
        source_language, target_language: as the model has them; "" for what need not be said.
        origin: the fingerprint of the vocabulary's files.
        vocab_size: of what is written.
        instruction: what stands in front of every source.

    Raises:
        UserError: the vocabulary puts no end mark behind a text, or nothing says what the decoder begins with.
    """
    vocabulary = languages.vocabulary
    written, special = vocabulary.written or vocabulary, languages.special(special, target_language)
    if NEVER in (special.bos_id, special.eos_id) or not vocabulary.encode(""):
        raise UserError("the model's files name no mark that an output begins with, or none that a text ends with")

    def whole(text: str) -> list[int]:
        return languages.encode(instruction + text, source_language, target_language)

    end, forced = whole("")[-1], list(special.forced)
    unknown = next((i for name in UNKNOWN if (i := written.id_of(name)) is not None), NEVER)
    marks = marks_of_side(special.pad_id, special.bos_id, end)
    sources = FamilySide(vocabulary, lambda text: whole(text)[:-1], marks, declared=vocabulary.declared)
    before, behind = marks_around(written.encode(""), written.encode("a"))

    def target(text: str) -> list[int]:
        ids = written.encode(text)
        bare = ids[before if languages.family in CODED else 0 : len(ids) - behind]
        return bare if bare[:1] == forced else [*forced, *bare]

    ids = [special.bos_id, special.eos_id, *forced]
    own = "/".join([origin, source_language, target_language, *map(str, ids)])
    return FamilySide(
        written,
        target,
        replace(special, source_end=(end,), unk_id=unknown),
        sources,
        fingerprint=own,
        vocab_size=vocab_size,
    )
