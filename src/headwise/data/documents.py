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
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tqdm import tqdm

from headwise.config.data import TextData
from headwise.data.cache import cache, draft_folder, draft_path
from headwise.data.corpus import RawLines, json_object, read_lines
from headwise.data.file_hashes import HashedFiles, hash_files, short_hash
from headwise.data.prepared import META, map_array, spool_path
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
CHUNK_CHARACTERS = 1 << 16  # characters of a document that are tokenised at once
GROUP_CHARACTERS = 1 << 20  # characters of several
TOKENS, TOKEN_DTYPE = "tokens.values", np.dtype("<i4")


@dataclass(frozen=True)
class TextChunk:
    """A part of a document."""

    text: str
    first: bool
    last: bool


@dataclass(frozen=True)
class DocumentTokenizer:
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
        first, last = (replace(self, tokens=tokens, key=short_hash(self.key, name, cut)) for tokens, name in parts)
        return first, last


# --- Reading


def _read(path: str, raw: RawLines | None = None) -> Iterator[TextChunk]:
    empty = True
    for stretch in _chunks_of_file(path, raw):
        empty = False
        yield stretch
    if empty:
        raise UserError(f"{display_name(path)}: is empty; a language model learns from text")


def _chunks_of_file(path: str, raw: RawLines | None) -> Iterator[TextChunk]:
    _check_path(path)
    if not path.removesuffix(".gz").endswith(".jsonl"):
        yield from text_chunks(read_lines(path, allow_empty=True, raw=raw))
        return
    for number, line in enumerate(read_lines(path, allow_empty=True, raw=raw), start=1):
        yield from text_chunks(_document(line, f"{display_name(path)}: line {number}").split("\n"))


def _check_path(path: str) -> None:
    if path.startswith(HF_PREFIX):
        raise UserError(f"{path}: a language model reads files: text, or .jsonl with a document a line")


def _document(line: str, location: str) -> str:
    return text_field(json_object(line, location, '{"text": "..."}'), "text", location)


def text_chunks(lines: Iterable[str], size: int = CHUNK_CHARACTERS) -> Iterator[TextChunk]:
    """A document, of which these are the lines, in parts of about `size` characters; nothing of an empty one.

    It is cut where a line with text follows a line with text: blanks at both sides of a line end may be one piece.

    >>> [(one.text, one.first, one.last) for one in text_chunks(["ab", "cd", "", "ef"], size=3)]
    [('ab\\n', True, False), ('cd\\n\\nef', False, True)]
    """
    part: list[str] = []
    first, length = True, 0
    for line in lines:
        if length >= size and part[-1:] != [""] and not part[-1][-1].isspace() and line and not line[0].isspace():
            yield TextChunk("\n".join([*part, ""]), first, last=False)
            part, first, length = [], False, 0
        part.append(line)
        length += len(line) + 1
    if text := "\n".join(part):
        yield TextChunk(text, first, last=True)


def _together(parts: Iterable[TextChunk]) -> Iterator[list[TextChunk]]:
    """Stretches that are tokenised at once."""
    group: list[TextChunk] = []
    characters = 0
    for part in parts:
        group.append(part)
        characters += len(part.text)
        if characters >= GROUP_CHARACTERS or len(group) >= GROUP_CHARACTERS // CHUNK_CHARACTERS * 64:
            yield group
            group, characters = [], 0
    if group:
        yield group


# --- A tokenizer of ours


def train_document_tokenizer(
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
        name = folder / f"tokenizer-{short_hash(FORMAT, tokenizers.__version__, 'documents', settings, hashes)}.json"
        with suppress(UserError):  # absent or damaged
            return Tokenizer.load(name)
        learnt = train_on_documents((part.text for part in _unchanged(found)), config, special, marks)
        with draft_path(folder, name.name) as draft:
            learnt.save(draft)
            draft.replace(name)
    return learnt


def train_on_documents(
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


def document_tokenizer(tokenizer: Tokenizer) -> DocumentTokenizer:
    """By a tokenizer of ours: behind every document stands its end mark."""
    return DocumentTokenizer(
        tokenizer.encode_batch, [], [tokenizer.eos_id], tokenizer.fingerprint, tokenizer.vocab_size
    )


# --- Ids on disk


def prepare_documents(
    paths: Sequence[str], cutter: DocumentTokenizer, cache_dir: Path | None = None, progress: bool = True
) -> PreparedText:
    """Tokenise files into one memory-mapped row, or find it in the cache.

    Raises:
        UserError: a file is bad or empty, or a token is none that the network knows; then nothing is written.
    """
    with cache(cache_dir) as folder:
        found = [*map(_content, paths)]
        marks = [*cutter.before], [*cutter.behind], cutter.vocab_size
        hashes = [_key(known) for known in found]
        name = short_hash(FORMAT, tokenizers.__version__, "documents", cutter.fingerprint, *marks, hashes)
        target = folder / name
        if not _intact(target):
            shutil.rmtree(target, ignore_errors=True)
            _build(target, found, cutter, progress)
        meta = json.loads((target / META).read_text(encoding="utf-8"))
        return PreparedText(map_array(target / TOKENS, TOKEN_DTYPE), meta["documents"], meta["characters"], name)


def spool_files(paths: Sequence[str], cache_dir: Path | None = None) -> list[str]:
    """The same files, but what can be read only once is copied to the cache first."""
    with cache(cache_dir) as folder:
        return [spool_path(path, folder) for path in paths]


def _content(path: str) -> HashedFiles:
    """What a file holds; `UserError` where it is none that a language model reads."""
    _check_path(path)
    return hash_files([path])


def _key(known: HashedFiles) -> str:
    """A hash of a file with what its name says of it."""
    return known.hashes[0] + ".jsonl" * known.paths[0].removesuffix(".gz").endswith(".jsonl")


def _unchanged(files: Iterable[HashedFiles]) -> Iterator[TextChunk]:
    """The documents of files, which must still hold what is known of them."""
    return chain.from_iterable(known.read(partial(_read, known.paths[0])) for known in files)


def _build(target: Path, files: Sequence[HashedFiles], cutter: DocumentTokenizer, progress: bool) -> None:
    """Write the row beside `target`, then give it that name in one step."""
    shown, size = None if progress else True, sum(known.size for known in files)  # None: on a terminal only
    with draft_folder(target, _intact) as draft:
        with (
            open(draft / TOKENS, "wb") as file,
            tqdm(total=size, desc="tokenising", unit="B", unit_scale=True, disable=shown) as bar,
        ):
            counts = _write(file, files, cutter, bar)
        (draft / META).write_text(json.dumps(counts), encoding="utf-8")


def _write(file: IO[bytes], files: Sequence[HashedFiles], cutter: DocumentTokenizer, bar: tqdm) -> dict[str, int]:
    """Append the tokens of all documents; how many there are of what."""
    counts = {"tokens": 0, "documents": 0, "characters": 0}
    for parts in _together(_unchanged(files)):
        for part, ids in zip(parts, cutter.encode_batch([one.text for one in parts]), strict=True):
            before, behind = cutter.before if part.first else (), cutter.behind if part.last else ()
            row = np.array([*before, *ids, *behind], TOKEN_DTYPE)
            _check_ids(row, cutter)
            file.write(row.tobytes())
            counts["tokens"] += len(row)
            counts["documents"] += part.last
            counts["characters"] += len(part.text)
            bar.update(len(part.text.encode()))
    return counts


def _check_ids(row: NDArray[np.int32], cutter: DocumentTokenizer) -> None:
    if len(row) and not 0 <= int(row.min()) <= int(row.max()) < cutter.vocab_size:
        raise UserError(
            f"the tokenizer gives the id {int(row.max())}, but the network knows {cutter.vocab_size:,} pieces: put the "
            "model's own tokenizer back"
        )


def _intact(folder: Path) -> bool:
    """Whether a prepared row is there and as long as was noted when it was written."""
    try:
        tokens = json.loads((folder / META).read_text(encoding="utf-8"))["tokens"]
        return (folder / TOKENS).stat().st_size == tokens * TOKEN_DTYPE.itemsize
    except (OSError, ValueError, KeyError, TypeError):
        return False
