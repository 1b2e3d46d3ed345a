"""A tokenised corpus, cached on disk and memory-mapped.

`prepare` reads the pairs, drops those that are unsuitable for training, and writes token ids and texts into flat
arrays. The name of the folder is a hash of the input, so the next run with the same input starts at once. Memory does
not grow with the corpus. Reading files is in `corpus.py`, the cache folder in `cache.py`, batches in `batching.py`.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import tokenizers
from numpy.typing import NDArray

from headwise.config.data import LineData, PairData, TextData
from headwise.data.cache import cache, draft_folder, draft_path
from headwise.data.corpus import Corpus, read_corpus
from headwise.data.file_hashes import HashedFiles, HashedLines, hash_corpora, short_hash
from headwise.data.hugging_face import cached_dataset
from headwise.data.pair_tokenizer import PairTokenizer
from headwise.data.sampling import sample_evenly
from headwise.data.sources import HF_PREFIX, STANDARD_INPUT, CachedCopy, Pair, display_name
from headwise.data.tokenize_pairs import COLUMNS, LENGTH, tokenize_pairs, tokenizing_processes
from headwise.data.tokenizer import Tokenizer
from headwise.errors import UserError

FORMAT = 1  # version of the cache; raise it when its files or the construction of a tokenizer change
CHUNK = 4096  # pairs tokenised at once
MIN_PAIRS_PER_WORKER = 50_000
ENDS = np.dtype("<i8")
META = "meta.json"

Item = TypeVar("Item")


@dataclass(frozen=True)
class Column:
    """Rows of different lengths in one flat array; row i is `values[ends[i]:ends[i + 1]]`."""

    values: NDArray[Any]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self.values[self.ends[row] : self.ends[row + 1]]


@dataclass(frozen=True)
class PreparedCorpus:
    """A tokenised parallel corpus on disk."""

    columns: dict[str, Column]
    src_lengths: NDArray[np.int32]  # tokens of every source, with EOS
    tgt_lengths: NDArray[np.int32]  # tokens of every target, with EOS
    kept: list[int]  # pairs of each corpus; the corpora are concatenated
    read: int  # pairs in the files
    dropped: dict[str, int]  # dropped pairs by reason
    key: str  # hash of the input

    def __len__(self) -> int:
        return len(self.columns["src"])

    def src(self, row: int) -> NDArray[np.int32]:
        """Source ids of a pair, without EOS."""
        return self.columns["src"][row]

    def tgt(self, row: int) -> NDArray[np.int32]:
        """Target ids of a pair, without BOS and EOS."""
        return self.columns["tgt"][row]

    def text(self, row: int) -> Pair:
        """Source and target text of a pair, as in the files."""
        src, tgt = self.columns["src_text"][row], self.columns["tgt_text"][row]
        return src.tobytes().decode(), tgt.tobytes().decode()

    def in_epoch(self, epoch: int) -> "PreparedCorpus":
        """The same pairs in every epoch."""
        return self


def train_tokenizer(
    corpora: Sequence[Corpus],
    config: TextData,
    special: Sequence[str] = (),
    cache_dir: Path | None = None,
    sources_only: bool = False,
    report: Callable[[str], None] = lambda message: None,
) -> Tokenizer:
    """Train a tokenizer on both sides of the pairs, or load it from the cache.

    Of more than `config.tokenizer_sample` pairs, it is trained on so many, in equal parts from everywhere in the files;
    `report` gets a message then. `sources_only` skips the targets, for targets that are labels.
    """
    settings = [config.subword, config.vocab_size, config.normalization, config.lowercase, *special]
    with cache(cache_dir) as folder:
        contents = hash_corpora(corpora := spool(corpora, folder))
        hashes = [one.key for one in contents]
        sides = ["src"] if sources_only else []
        pairs = chain.from_iterable(map(read_unchanged, corpora, contents))
        total, most = (
            sum(one.lines[0] for one in contents),
            config.tokenizer_sample if isinstance(config, PairData) else 0,
        )
        if 0 < most < total:
            report(f"the tokenizer is trained on {most:,} of {total:,} pairs (data.tokenizer_sample)")
            pairs, sides = sample_evenly(pairs, total, most), [*sides, f"{most} pairs"]
        name = folder / f"tokenizer-{short_hash(FORMAT, tokenizers.__version__, settings, hashes, *sides)}.json"
        texts = (side for pair in pairs for side in pair[: 1 if sources_only else 2])
        return cached_tokenizer(name, lambda: Tokenizer.train(texts, config, special))


def cached_tokenizer(path: Path, train: Callable[[], Tokenizer]) -> Tokenizer:
    """Load a tokenizer from the cache; if it is absent or damaged, train and save it."""
    with suppress(UserError):
        return Tokenizer.load(path)
    tokenizer = train()
    with draft_path(path.parent, path.name) as draft:
        tokenizer.save(draft)
        draft.replace(path)
    return tokenizer


def prepare(
    corpora: Sequence[Corpus],
    tokenizer: PairTokenizer,
    config: LineData,
    cache_dir: Path | None = None,
    progress: bool = True,
    clean: bool = True,
    workers: int = 1,
) -> PreparedCorpus:
    """Tokenise pairs into memory-mapped arrays; uses the cache.

    Args:
        clean: for training: drop pairs with an empty side, longer than `config.max_length` or more uneven than
            `config.max_length_ratio`. Validation and test sets keep every pair.
        workers: at most so many processes tokenise a large corpus, for tokenizers trained here; the result is the same.

    Raises:
        UserError: a file is invalid or no pair is left; then nothing is written.
    """
    from tqdm import tqdm  # not needed for translating

    with cache(cache_dir) as folder:
        contents = hash_corpora(corpora := spool(corpora, folder))
        hashes, n_pairs = [one.key for one in contents], sum(one.lines[0] for one in contents)
        assert isinstance(config, PairData) or not clean
        limits = config if isinstance(config, PairData) and clean else None
        cleaning = [limits.max_length, limits.max_length_ratio] if limits else []
        target = folder / short_hash(FORMAT, tokenizers.__version__, tokenizer.fingerprint, cleaning, hashes)
        if not is_complete(target):
            shutil.rmtree(target, ignore_errors=True)
            shown = None if progress else True  # None: only on a terminal
            with tqdm(total=n_pairs, desc="tokenising", unit=" pairs", disable=shown) as bar:
                share = workers if isinstance(tokenizer, Tokenizer) else 1  # others cannot be pickled
                build_corpus(
                    target, corpora, contents, tokenizer, limits, bar, min(share, n_pairs // MIN_PAIRS_PER_WORKER)
                )
        return open_prepared(target)


def build_corpus(
    target: Path,
    corpora: Sequence[Corpus],
    contents: Sequence[HashedFiles],
    tokenizer: PairTokenizer,
    limits: PairData | None,
    bar: Any,
    workers: int = 1,
) -> None:
    """Write a prepared corpus and rename it to `target` when it is complete.

    Raises:
        UserError: a file has changed since it was hashed, or no pair is left; then nothing is written.
    """
    with draft_folder(target, is_complete) as folder:
        pairs = list(map(read_unchanged, corpora, contents))
        kept, dropped = write_columns(folder, pairs, tokenizer, limits, bar, workers)
        if not any(kept):
            raise nothing_left_error(corpora, dropped)
        sizes = {name: (folder / name).stat().st_size for name in file_names()}
        meta = {"read": sum(kept) + sum(dropped.values()), "kept": kept, "dropped": dropped, "sizes": sizes}
        (folder / META).write_text(json.dumps(meta), encoding="utf-8")


def read_unchanged(corpus: Corpus, known: HashedFiles) -> Iterator[Pair]:
    """The pairs of a corpus; `UserError` if it has changed since it was hashed."""
    return known.read(lambda raw: read_corpus(corpus, raw))


def write_columns(
    folder: Path,
    corpora: Sequence[Iterator[Pair]],
    tokenizer: PairTokenizer,
    limits: PairData | None,
    bar: Any,
    workers: int,
) -> tuple[list[int], dict[str, int]]:
    """Tokenise in chunks and write the columns; returns the kept pairs of each corpus, and dropped pairs by reason."""
    kept, dropped = [0] * len(corpora), Counter[str]()
    with ExitStack() as files:
        columns = [files.enter_context(column_writer(folder, name)) for name in COLUMNS]
        processes = None
        if workers > 1:
            processes = files.enter_context(tokenizing_processes(workers, tokenizer, limits))
        for i, pairs in enumerate(corpora):
            read = chunks(pairs)
            results = processes(read) if processes else (tokenize_pairs(chunk, tokenizer, limits) for chunk in read)
            for parts, reasons in results:
                for column, rows in zip(columns, parts, strict=bool(parts)):
                    column.append(*rows)
                n_kept = len(parts[0][1]) if parts else 0
                kept[i] += n_kept
                dropped.update(reasons)
                bar.update(n_kept + reasons.total())
    return kept, dict(dropped)


def chunks(items: Iterator[Item]) -> Iterator[list[Item]]:
    """Lists of up to CHUNK items."""
    while chunk := list(islice(items, CHUNK)):
        yield chunk


def nothing_left_error(corpora: Sequence[Corpus], dropped: dict[str, int]) -> UserError:
    """The error for a corpus without a usable pair."""
    read, names = sum(dropped.values()), ", ".join(map(str, corpora))
    reasons = ", ".join(f"{reason}: {count}" for reason, count in dropped.items()) or "no pair in it"
    return UserError(
        f"{names}: nothing to train on, all {read} pairs were dropped ({reasons}); "
        "check the files, or raise data.max_length or data.max_length_ratio"
    )


class ColumnWriter:
    """Appends rows to a column on disk."""

    def __init__(self, files: Sequence[IO[bytes]]) -> None:
        self.values, self.ends, *self.lengths = files
        self.end = 0
        self.ends.write(np.zeros(1, ENDS).tobytes())

    def append(self, values: bytes, lengths: NDArray[np.int32]) -> None:
        """Append concatenated rows."""
        ends = self.end + np.cumsum(lengths, dtype=ENDS)
        self.end = int(ends[-1])
        self.values.write(values)
        self.ends.write(ends.tobytes())
        for file in self.lengths:
            file.write((lengths + 1).tobytes())


@contextmanager
def column_writer(folder: Path, name: str) -> Iterator[ColumnWriter]:
    """A writer for the files of a column."""
    with ExitStack() as files:
        yield ColumnWriter([files.enter_context(open(folder / file, "wb")) for file in column_files(name)])


def column_files(column: str) -> list[str]:
    """The files of a column; columns of tokens have lengths too, for planning batches."""
    parts = ("values", "ends") if column.endswith("_text") else ("values", "ends", "lengths")
    return [f"{column}.{part}" for part in parts]


def file_names() -> list[str]:
    """The files of a prepared corpus except meta.json."""
    return list(chain.from_iterable(map(column_files, COLUMNS)))


def is_complete(folder: Path) -> bool:
    """Whether all files of a prepared corpus exist and have the recorded sizes."""
    try:
        sizes = json.loads((folder / META).read_text(encoding="utf-8"))["sizes"]
        return all((folder / name).stat().st_size == sizes[name] for name in file_names())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def open_prepared(folder: Path) -> PreparedCorpus:
    """Map a prepared corpus into memory."""
    meta = json.loads((folder / META).read_text(encoding="utf-8"))
    columns = {
        name: Column(map_array(folder / f"{name}.values", dtype), map_array(folder / f"{name}.ends", ENDS))
        for name, dtype in COLUMNS.items()
    }
    src_lengths, tgt_lengths = (map_array(folder / f"{side}.lengths", LENGTH) for side in ("src", "tgt"))
    return PreparedCorpus(columns, src_lengths, tgt_lengths, meta["kept"], meta["read"], meta["dropped"], folder.name)


def map_array(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Memory-map a file as an array; a plain view, because slicing `np.memmap` itself is slow."""
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r").view(np.ndarray)


def spool(corpora: Sequence[Corpus], cache_dir: Path | None = None) -> list[Corpus]:
    """Copy inputs that can be read only once (standard input, pipes, streamed datasets) to the cache.

    Call it before `train_tokenizer` if `prepare` is to read the same input again.
    """
    with cache(cache_dir) as folder:
        return [replace(corpus, paths=tuple(spool_path(path, folder) for path in corpus.paths)) for corpus in corpora]


def spool_path(path: str, folder: Path) -> str:
    """A path that can be read repeatedly; it keeps the suffix, which tells the format."""
    if path.startswith(HF_PREFIX):
        return CachedCopy(str(cached_dataset(path, folder)), [path])
    if path != STANDARD_INPUT and not Path(path).is_fifo():
        return path
    ending = ".tsv" if path == STANDARD_INPUT else "".join(Path(path).suffixes).removesuffix(".gz")
    origin, lines = "standard-input" if path == STANDARD_INPUT else "pipe", HashedLines()
    with draft_path(folder, "spool") as draft:
        with draft.open("wb") as copy:
            copy.writelines(lines(path))
        copied_to = folder / f"{origin}-{lines.hashes[0][:16]}{ending}"
        if not copied_to.exists():  # otherwise it has the same content, and may be another user's
            draft.replace(copied_to)
        return CachedCopy(str(copied_to), [display_name(path)])
