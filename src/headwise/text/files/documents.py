"""Running text for language models: from files to one array of token ids.

A text file is one document, with its line ends; a `.jsonl` file has a document on every line, `{"text": "..."}`.
Documents are tokenised with special tokens around them and concatenated. Everything streams: memory grows only with the
longest line, and the ids are cached on disk and memory-mapped (as in `prepared`).

A long document is tokenised in chunks of whole lines. A tokenizer trained here gives the same tokens as for the whole
document, because every line end is a token of its own; so does GPT-2's. A tokenizer that prepends a space to every text
(LLaMA's) prepends one to every chunk. Blocks and batches are in `blocks`.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from headwise.errors import UserError
from headwise.text.files.columns import map_array
from headwise.text.files.corpus import RawLines, json_object, read_lines
from headwise.text.files.sources import HF_PREFIX, display_name, text_field
from headwise.text.prepared.cache import cache, checked_folder, is_intact
from headwise.text.prepared.file_hashes import HashedFiles, hash_files, short_hash
from headwise.text.prepared.prepared import META, cached_tokenizer, spool_path
from headwise.text.tokens.tokenizer import (
    SPECIALS,
    UNK,
    Tokenizer,
    normalization,
    pre_tokenizer,
    split_at,
    subword_model,
    subword_trainer,
)

FORMAT = 2  # version of the cache
CHUNK_CHARACTERS = 1 << 16  # length of a part of a long document
GROUP_CHARACTERS = 1 << 20  # characters tokenised at once
TOKENS, TOKEN_DTYPE = "tokens.values", np.dtype("<i4")
ENDS, END_DTYPE = "ends.values", np.dtype("<i8")


@dataclass(frozen=True)
class TextChunk:
    """A part of a document."""

    text: str
    first: bool
    last: bool


@dataclass(frozen=True)
class DocumentTokenizer:
    """Tokenises documents."""

    encode_batch: Callable[[Sequence[str]], list[list[int]]]  # without special tokens
    prefix: Sequence[int]  # special tokens before a document
    suffix: Sequence[int]  # and after it
    fingerprint: str  # of the tokenizer
    vocab_size: int  # of the network


@dataclass(frozen=True)
class PreparedText:
    """The concatenated tokens of documents."""

    tokens: NDArray[np.int32]
    ends: NDArray[np.int64]  # of each document, in tokens from the start
    characters: int
    key: str  # hash of the input

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def documents(self) -> int:
        return len(self.ends)

    def hold_out(self, share: float, whole: bool = False) -> "tuple[PreparedText, PreparedText]":
        """Split off the last `share` of the tokens, for validation; if `whole`, of the documents."""
        cut = len(self) - max(1, round(share * len(self)))
        if whole:
            cut = int(self.ends[-1 - max(1, round(share * self.documents))]) if self.documents > 1 else 0
        before = self.ends < cut
        parts = (  # these names are part of cached keys
            (self.tokens[:cut], [*self.ends[before], cut] if cut else [], "before"),
            (self.tokens[cut:], self.ends[self.ends > cut] - cut, "behind"),
        )
        first, last = (
            replace(self, tokens=tokens, ends=np.array(ends, END_DTYPE), key=short_hash(self.key, name, cut))
            for tokens, ends, name in parts
        )
        return first, last


# --- Reading


def has_documents(path: str) -> bool:
    """Whether each line of a file is a document, an object of JSON."""
    return path.removesuffix(".gz").endswith(".jsonl")


def _read(path: str, by_line: bool, raw: RawLines | None = None) -> Iterator[TextChunk]:
    has_text = False
    for stretch in _lines_of_file(path, raw) if by_line and not has_documents(path) else _chunks_of_file(path, raw):
        has_text = has_text or bool(stretch.text.strip())
        yield stretch
    if not has_text:
        raise UserError(f"{display_name(path)}: has no text, which a language model needs")


def _chunks_of_file(path: str, raw: RawLines | None) -> Iterator[TextChunk]:
    _check_path(path)
    if not has_documents(path):
        yield from text_chunks(read_lines(path, allow_empty=True, raw=raw))
        return
    for number, line in enumerate(read_lines(path, allow_empty=True, raw=raw), start=1):
        yield from text_chunks(_document(line, f"{display_name(path)}: line {number}").split("\n"))


def _lines_of_file(path: str, raw: RawLines | None) -> Iterator[TextChunk]:
    """Each line with text as a document."""
    _check_path(path)
    return (TextChunk(line, True, True) for line in read_lines(path, allow_empty=True, raw=raw) if line.strip())


def _check_path(path: str) -> None:
    if path.startswith(HF_PREFIX):
        raise UserError(
            f"{path}: language models are trained on text files, or .jsonl files with one document per line"
        )


def _document(line: str, location: str) -> str:
    return text_field(json_object(line, location, '{"text": "..."}'), "text", location)


def text_chunks(lines: Iterable[str], size: int = CHUNK_CHARACTERS) -> Iterator[TextChunk]:
    """Split a document, given as lines, into chunks of about `size` characters; an empty document has none.

    It is split between two lines with text, because spaces around a line end may form one token.

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


def _groups(parts: Iterable[TextChunk]) -> Iterator[list[TextChunk]]:
    """Groups of chunks that are tokenised at once."""
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


# --- Training a tokenizer


def train_document_tokenizer(
    paths: Sequence[str],
    config: TextData,
    declared: Sequence[str] = (),
    special_tokens: Sequence[str] = SPECIALS,
    cache_dir: Path | None = None,
) -> Tokenizer:
    """Train a tokenizer on documents, or load it from the cache."""
    settings = [config.subword, config.vocab_size, config.normalization, config.lowercase, *declared, [*special_tokens]]
    with cache(cache_dir) as folder:
        files = [*map(_hash_file, paths)]
        hashes = [_key(known) for known in files]
        name = folder / f"tokenizer-{short_hash(FORMAT, tokenizers.__version__, 'documents', settings, hashes)}"
        texts = (part.text for part in _read_unchanged(files))
        return cached_tokenizer(name, lambda: train_on_documents(texts, config, declared, special_tokens))


def train_on_documents(
    texts: Iterable[str], config: TextData, declared: Sequence[str] = (), special_tokens: Sequence[str] = SPECIALS
) -> Tokenizer:
    """Like `Tokenizer.train`, but without a space before a text, because a text continues the one before it.

    With the subword "characters" the tokens are the most frequent characters. `declared` strings become tokens of their
    own. `special_tokens` are the four of `SPECIALS`, possibly with other names, and others after them.
    """
    by_characters, unknown = config.subword == "characters", special_tokens[SPECIALS.index(UNK)]
    model = models.WordLevel(unk_token=unknown) if by_characters else subword_model(config.subword)
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.Sequence(normalization(config))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated") if by_characters else pre_tokenizer()
    backend.decoder = decoders.Fuse() if by_characters else decoders.ByteLevel()
    plain = (part for text in texts for part in split_at(declared, text) if part not in declared)
    backend.train_from_iterator(plain, _trainer(config, len(declared), special_tokens))
    backend.add_tokens([AddedToken(token, special=False, normalized=False) for token in declared])
    return Tokenizer(backend)


def _trainer(config: TextData, n_declared: int, special_tokens: Sequence[str]) -> trainers.Trainer:
    if config.subword != "characters":
        return subword_trainer(config, n_declared, special_tokens)
    size = config.vocab_size - n_declared
    if size <= len(special_tokens):
        raise UserError(
            f"data.vocab_size is {config.vocab_size}; special tokens alone need {n_declared + len(special_tokens)}"
        )
    return trainers.WordLevelTrainer(
        vocab_size=size, min_frequency=1, special_tokens=list(special_tokens), show_progress=False
    )


def document_tokenizer(tokenizer: Tokenizer) -> DocumentTokenizer:
    """A tokenizer trained here, with EOS after every document."""
    return DocumentTokenizer(
        tokenizer.encode_batch, [], [tokenizer.eos_id], tokenizer.fingerprint, tokenizer.vocab_size
    )


# --- Ids on disk


def prepare_documents(
    paths: Sequence[str],
    tokenizer: DocumentTokenizer,
    cache_dir: Path | None = None,
    progress: bool = True,
    by_line: bool = False,
) -> PreparedText:
    """Tokenise files into one memory-mapped array; uses the cache. `by_line`: each line is a document.

    Raises:
        UserError: a file is invalid or empty, or an id is outside the vocabulary of the network; then nothing is
        written.
    """
    with cache(cache_dir) as folder:
        files = [*map(_hash_file, paths)]
        around = [*tokenizer.prefix], [*tokenizer.suffix], tokenizer.vocab_size, by_line
        hashes = [_key(known) for known in files]
        name = short_hash(FORMAT, tokenizers.__version__, "documents", tokenizer.fingerprint, *around, hashes)
        target = folder / name
        if not is_intact(target):
            shutil.rmtree(target, ignore_errors=True)
            _build(target, _read_unchanged(files, by_line), sum(known.size for known in files), tokenizer, progress)
        meta = json.loads((target / META).read_text(encoding="utf-8"))
        arrays = map_array(target / TOKENS, TOKEN_DTYPE), map_array(target / ENDS, END_DTYPE)
        return PreparedText(*arrays, meta["characters"], name)


def count_bytes(paths: Sequence[str]) -> int:
    """The size of the documents in files, in bytes of UTF-8."""
    return sum(len(part.text.encode()) for path in paths for part in _read(path, by_line=False))


def spool_files(paths: Sequence[str], cache_dir: Path | None = None) -> list[str]:
    """Copy files that can be read only once to the cache."""
    with cache(cache_dir) as folder:
        return [spool_path(path, folder) for path in paths]


def _hash_file(path: str) -> HashedFiles:
    """Hash a file; `UserError` if it is not a file."""
    _check_path(path)
    return hash_files([path])


def _key(known: HashedFiles) -> str:
    """The hash of a file and of its format."""
    return known.hashes[0] + ".jsonl" * has_documents(known.paths[0])


def _read_unchanged(files: Iterable[HashedFiles], by_line: bool = False) -> Iterator[TextChunk]:
    """The documents of files; `UserError` if a file has changed since it was hashed."""
    return chain.from_iterable(known.read(partial(_read, known.paths[0], by_line)) for known in files)


def _build(target: Path, texts: Iterable[TextChunk], size: int, tokenizer: DocumentTokenizer, progress: bool) -> None:
    """Write the arrays of texts with `size` bytes and rename their folder to `target` when they are complete."""
    shown = None if progress else True  # None: only on a terminal
    with checked_folder(target) as draft:
        with (
            open(draft / TOKENS, "wb") as file,
            open(draft / ENDS, "wb") as ends,
            tqdm(total=size, desc="tokenising", unit="B", unit_scale=True, disable=shown) as bar,
        ):
            counts = _write(file, ends, texts, tokenizer, bar)
        (draft / META).write_text(json.dumps(counts), encoding="utf-8")


def _write(
    file: IO[bytes], ends: IO[bytes], texts: Iterable[TextChunk], tokenizer: DocumentTokenizer, bar: tqdm
) -> dict[str, int]:
    """Write the tokens of all documents and where they end; returns the counts."""
    counts = {"tokens": 0, "documents": 0, "characters": 0}
    for parts in _groups(texts):
        for part, ids in zip(parts, tokenizer.encode_batch([one.text for one in parts]), strict=True):
            prefix, suffix = tokenizer.prefix if part.first else (), tokenizer.suffix if part.last else ()
            row = np.array([*prefix, *ids, *suffix], TOKEN_DTYPE)
            _check_ids(row, tokenizer)
            file.write(row.tobytes())
            counts["tokens"] += len(row)
            counts["documents"] += part.last
            ends.write(np.array([counts["tokens"]] * part.last, END_DTYPE).tobytes())
            counts["characters"] += len(part.text)
            bar.update(len(part.text.encode()))
    return counts


def _check_ids(row: NDArray[np.int32], tokenizer: DocumentTokenizer) -> None:
    if len(row) and not 0 <= int(row.min()) <= int(row.max()) < tokenizer.vocab_size:
        raise UserError(
            f"the tokenizer gives the id {int(row.max())}, but the network has {tokenizer.vocab_size:,} tokens: "
            "restore the model's own tokenizer"
        )
