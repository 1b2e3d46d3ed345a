"""Running text, from files to one row of token ids: what a language model learns from.

A file of text is one document, with its line ends; a `.jsonl` file has a document on every line, `{"text": "..."}`.
Each is cut into tokens with the marks that its tokenizer has around a document, and stands behind the one before it.
All of it streams: memory grows with the longest line alone, and the ids lie in the cache, mapped into memory (as in
`prepared`).

A long document is tokenised in stretches that end with a line. Ours, by which every line end is a piece of its own,
gives the same pieces as for the whole, and so does GPT-2's. One that puts a blank before every text (LLaMA's) puts one
before every stretch. Not here: blocks and batches (`blocks`).
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial as partial_of
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tqdm import tqdm

from headwise.config.data import TextData
from headwise.data.cache import cache, partial, partial_folder
from headwise.data.corpus import RawLines, json_object, read_lines
from headwise.data.file_hashes import Content, content_of, digest
from headwise.data.prepared import META, mapped, spooled
from headwise.data.sources import HF_PREFIX, display_name, text_field
from headwise.data.tokenizer import (
    SPECIALS,
    UNK,
    Tokenizer,
    normalization,
    pre_tokenizer,
    split_at,
    subword_model,
    subword_trainer,
)
from headwise.errors import UserError

FORMAT = 1  # of the cache
STRETCH = 1 << 16  # characters of a document that are tokenised at once
ROOM = 1 << 20  # characters of several
TOKENS, KIND = "tokens.values", np.dtype("<i4")


@dataclass(frozen=True)
class Stretch:
    """A part of a document."""

    text: str
    first: bool
    last: bool


@dataclass(frozen=True)
class Cutter:
    """How documents become tokens."""

    encode_batch: Callable[[Sequence[str]], list[list[int]]]  # without marks
    before: Sequence[int]  # the marks before a document
    behind: Sequence[int]  # and behind it
    fingerprint: str  # of the tokenizer
    vocab_size: int  # ids that the network knows


@dataclass(frozen=True)
class PreparedText:
    """Documents as tokens, one behind the other."""

    tokens: NDArray[np.int32]
    documents: int
    characters: int
    key: str  # hash of everything that went in

    def __len__(self) -> int:
        return len(self.tokens)

    def parted(self, share: float) -> "tuple[PreparedText, PreparedText]":
        """All but the last `share` of the tokens, and those."""
        cut = len(self) - max(1, round(share * len(self)))
        parts = (self.tokens[:cut], "before"), (self.tokens[cut:], "behind")
        first, last = (replace(self, tokens=tokens, key=digest(self.key, name, cut)) for tokens, name in parts)
        return first, last


# --- Reading


def _read(path: str, raw: RawLines | None = None) -> Iterator[Stretch]:
    empty = True
    for stretch in _stretches_of(path, raw):
        empty = False
        yield stretch
    if empty:
        raise UserError(f"{display_name(path)}: is empty; a language model learns from text")


def _stretches_of(path: str, raw: RawLines | None) -> Iterator[Stretch]:
    _check_path(path)
    if not path.removesuffix(".gz").endswith(".jsonl"):
        yield from stretches(read_lines(path, allow_empty=True, raw=raw))
        return
    for number, line in enumerate(read_lines(path, allow_empty=True, raw=raw), start=1):
        yield from stretches(_document(line, f"{display_name(path)}: line {number}").split("\n"))


def _check_path(path: str) -> None:
    if path.startswith(HF_PREFIX):
        raise UserError(f"{path}: a language model reads files: text, or .jsonl with a document a line")


def _document(line: str, location: str) -> str:
    return text_field(json_object(line, location, '{"text": "..."}'), "text", location)


def stretches(lines: Iterable[str], size: int = STRETCH) -> Iterator[Stretch]:
    """A document, of which these are the lines, in parts of about `size` characters; nothing of an empty one.

    It is cut where a line with text follows a line with text: blanks at both sides of a line end may be one piece.

    >>> [(one.text, one.first, one.last) for one in stretches(["ab", "cd", "", "ef"], size=3)]
    [('ab\\n', True, False), ('cd\\n\\nef', False, True)]
    """
    part: list[str] = []
    first, length = True, 0
    for line in lines:
        if length >= size and part[-1:] != [""] and not part[-1][-1].isspace() and line and not line[0].isspace():
            yield Stretch("\n".join([*part, ""]), first, last=False)
            part, first, length = [], False, 0
        part.append(line)
        length += len(line) + 1
    if text := "\n".join(part):
        yield Stretch(text, first, last=True)


def _together(parts: Iterable[Stretch]) -> Iterator[list[Stretch]]:
    """Stretches that are tokenised at once."""
    group: list[Stretch] = []
    characters = 0
    for part in parts:
        group.append(part)
        characters += len(part.text)
        if characters >= ROOM or len(group) >= ROOM // STRETCH * 64:
            yield group
            group, characters = [], 0
    if group:
        yield group


# --- A tokenizer of ours


def learn_pieces(
    paths: Sequence[str],
    config: TextData,
    special: Sequence[str] = (),
    marks: Sequence[str] = SPECIALS,
    cache_dir: Path | None = None,
) -> Tokenizer:
    """Learn pieces, or the characters, of documents; the same files and settings give the cached tokenizer."""
    settings = [config.subword, config.vocab_size, config.normalization, config.lowercase, *special, [*marks]]
    with cache(cache_dir) as folder:
        found = [*map(_content, paths)]
        hashes = [_key(known) for known in found]
        name = folder / f"tokenizer-{digest(FORMAT, tokenizers.__version__, 'documents', settings, hashes)}.json"
        with suppress(UserError):  # absent or damaged
            return Tokenizer.load(name)
        learnt = learn((part.text for part in _unchanged(found)), config, special, marks)
        with partial(folder, name.name) as draft:
            learnt.save(draft)
            draft.replace(name)
    return learnt


def learn(
    texts: Iterable[str], config: TextData, special: Sequence[str] = (), marks: Sequence[str] = SPECIALS
) -> Tokenizer:
    """As `Tokenizer.train`, but that no blank is put before a text: it begins wherever the last one ended.

    By "characters" a piece is a character, the most frequent `config.vocab_size` of them; others are unknown. `marks`
    are the special tokens, the four of `SPECIALS` first, by whichever names.
    """
    by_characters, unknown = config.subword == "characters", marks[SPECIALS.index(UNK)]
    model = models.WordLevel(unk_token=unknown) if by_characters else subword_model(config.subword)
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.Sequence(normalization(config))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated") if by_characters else pre_tokenizer()
    backend.decoder = decoders.Fuse() if by_characters else decoders.ByteLevel()
    plain = (part for text in texts for part in split_at(special, text) if part not in special)
    backend.train_from_iterator(plain, _trainer(config, len(special), marks))
    backend.add_tokens([AddedToken(token, special=False, normalized=False) for token in special])
    return Tokenizer(backend)


def _trainer(config: TextData, n_declared: int, marks: Sequence[str]) -> trainers.Trainer:
    if config.subword != "characters":
        return subword_trainer(config, n_declared, marks)
    room = config.vocab_size - n_declared
    if room <= len(marks):
        raise UserError(f"data.vocab_size is {config.vocab_size}; special tokens alone need {len(marks) + n_declared}")
    return trainers.WordLevelTrainer(vocab_size=room, min_frequency=1, special_tokens=list(marks), show_progress=False)


def cutter_of(tokenizer: Tokenizer) -> Cutter:
    """By a tokenizer of ours: behind every document stands its end mark."""
    return Cutter(tokenizer.encode_batch, [], [tokenizer.eos_id], tokenizer.fingerprint, tokenizer.vocab_size)


# --- Ids on disk


def prepare_documents(
    paths: Sequence[str], cutter: Cutter, cache_dir: Path | None = None, progress: bool = True
) -> PreparedText:
    """Tokenise files into one memory-mapped row, or find it in the cache.

    Raises:
        UserError: a file is bad or empty, or a token is none that the network knows; then nothing is written.
    """
    with cache(cache_dir) as folder:
        found = [*map(_content, paths)]
        marks = [*cutter.before], [*cutter.behind], cutter.vocab_size
        hashes = [_key(known) for known in found]
        name = digest(FORMAT, tokenizers.__version__, "documents", cutter.fingerprint, *marks, hashes)
        target = folder / name
        if not _intact(target):
            shutil.rmtree(target, ignore_errors=True)
            _build(target, found, cutter, progress)
        meta = json.loads((target / META).read_text(encoding="utf-8"))
        return PreparedText(mapped(target / TOKENS, KIND), meta["documents"], meta["characters"], name)


def spooled_files(paths: Sequence[str], cache_dir: Path | None = None) -> list[str]:
    """The same files, but what can be read only once is copied to the cache first."""
    with cache(cache_dir) as folder:
        return [spooled(path, folder) for path in paths]


def _content(path: str) -> Content:
    """What a file holds; `UserError` where it is none that a language model reads."""
    _check_path(path)
    return content_of([path])


def _key(known: Content) -> str:
    """A hash of a file with what its name says of it."""
    return known.hashes[0] + ".jsonl" * known.paths[0].removesuffix(".gz").endswith(".jsonl")


def _unchanged(files: Iterable[Content]) -> Iterator[Stretch]:
    """The documents of files, which must still hold what is known of them."""
    return chain.from_iterable(known.read(partial_of(_read, known.paths[0])) for known in files)


def _build(target: Path, files: Sequence[Content], cutter: Cutter, progress: bool) -> None:
    """Write the row beside `target`, then give it that name in one step."""
    shown, size = None if progress else True, sum(known.size for known in files)  # None: on a terminal only
    with partial_folder(target, _intact) as draft:
        with (
            open(draft / TOKENS, "wb") as file,
            tqdm(total=size, desc="tokenising", unit="B", unit_scale=True, disable=shown) as bar,
        ):
            counts = _write(file, files, cutter, bar)
        (draft / META).write_text(json.dumps(counts), encoding="utf-8")


def _write(file: IO[bytes], files: Sequence[Content], cutter: Cutter, bar: tqdm) -> dict[str, int]:
    """Append the tokens of all documents; how many there are of what."""
    counts = {"tokens": 0, "documents": 0, "characters": 0}
    for parts in _together(_unchanged(files)):
        for part, ids in zip(parts, cutter.encode_batch([one.text for one in parts]), strict=True):
            before, behind = cutter.before if part.first else (), cutter.behind if part.last else ()
            row = np.array([*before, *ids, *behind], KIND)
            _check_ids(row, cutter)
            file.write(row.tobytes())
            counts["tokens"] += len(row)
            counts["documents"] += part.last
            counts["characters"] += len(part.text)
            bar.update(len(part.text.encode()))
    return counts


def _check_ids(row: NDArray[np.int32], cutter: Cutter) -> None:
    if len(row) and not 0 <= int(row.min()) <= int(row.max()) < cutter.vocab_size:
        raise UserError(
            f"the tokenizer gives the id {int(row.max())}, but the network knows {cutter.vocab_size:,} pieces: put the "
            "model's own tokenizer back"
        )


def _intact(folder: Path) -> bool:
    """Whether a prepared row is there and as long as was noted when it was written."""
    try:
        tokens = json.loads((folder / META).read_text(encoding="utf-8"))["tokens"]
        return (folder / TOKENS).stat().st_size == tokens * KIND.itemsize
    except (OSError, ValueError, KeyError, TypeError):
        return False
