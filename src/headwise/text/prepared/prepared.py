"""A tokenised corpus, cached on disk and memory-mapped.

`prepare` reads the pairs, drops those that are unsuitable for training, and writes token ids and texts into flat
arrays. The name of the folder is a hash of the input, so the next run with the same input starts at once. Memory does
not grow with the corpus.

A corpus of more than `file_hashes.SHARD` pairs is a list of shards: folders of that many pairs, each named by a hash of
the files up to its end. A shard appears when it is complete and its part of the files has been verified. Therefore a
killed preparation continues after the last shard, and a corpus that has grown at its end reuses its first shards.

Reading files is in `corpus.py`, the cache folder in `cache.py`, columns in `columns.py`, batches in `batching.py`.
"""

import json
import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import numpy as np
import tokenizers
from numpy.typing import NDArray

from headwise.config.data import LineData, PairData, TextData
from headwise.errors import UserError
from headwise.text.files.columns import (
    LENGTH_FILES,
    AnyColumn,
    JoinedColumn,
    column_writer,
    map_columns,
    map_lengths,
)
from headwise.text.files.corpus import Corpus, pair_reader, read_corpus
from headwise.text.files.hugging_face import cached_dataset
from headwise.text.files.sources import HF_PREFIX, STANDARD_INPUT, CachedCopy, Pair, display_name
from headwise.text.prepared import file_hashes
from headwise.text.prepared.cache import cache, checked_folder, draft_path, is_intact, sha256
from headwise.text.prepared.file_hashes import HashedFiles, HashedLines, hash_corpora, short_hash
from headwise.text.tokens.pair_tokenizer import PairTokenizer
from headwise.text.tokens.tokenize_pairs import COLUMNS, Result, tokenize_pairs, tokenizing_processes
from headwise.text.tokens.tokenizer import Tokenizer

FORMAT = 1  # version of the cache; raise it when its files or the construction of a tokenizer change
CHUNK = 4096  # pairs tokenised at once
MIN_PAIRS_PER_WORKER = 50_000
META = "meta.json"
TOKENIZER = "tokenizer.json"  # in its folder

Item = TypeVar("Item")
Tokenise = Callable[[Iterable[list[Pair]]], Iterator[Result]]  # chunks of pairs, one after the other


@dataclass(frozen=True)
class PreparedCorpus:
    """A tokenised parallel corpus on disk."""

    columns: Mapping[str, AnyColumn]
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

    Of more than `config.tokenizer_sample` pairs, it is trained on that number, in equal parts from all of the files;
    `report` gets a message then. `sources_only` skips the targets, for targets that are labels.
    """
    settings = [config.subword, config.vocab_size, config.normalization, config.lowercase, *special]
    with cache(cache_dir) as folder:
        contents = hash_corpora(corpora := spool(corpora, folder))
        hashes = [one.key for one in contents]
        sides = ["src"] if sources_only else []
        pairs = chain.from_iterable(map(read_unchanged, corpora, contents))
        total = sum(one.lines[0] for one in contents)
        most = config.tokenizer_sample if isinstance(config, PairData) else 0
        if 0 < most < total:
            report(f"the tokenizer is trained on {most:,} of {total:,} pairs (data.tokenizer_sample)")
            pairs, sides = sample_evenly(pairs, total, most), [*sides, f"{most} pairs"]
        name = folder / f"tokenizer-{short_hash(FORMAT, tokenizers.__version__, settings, hashes, *sides)}"
        texts = (side for pair in pairs for side in pair[: 1 if sources_only else 2])
        return cached_tokenizer(name, lambda: Tokenizer.train(texts, config, special))


def cached_tokenizer(target: Path, train: Callable[[], Tokenizer]) -> Tokenizer:
    """Load a tokenizer from its folder in the cache; if it is absent or damaged, train and save it."""
    if is_intact(target):
        return Tokenizer.load(target / TOKENIZER)
    tokenizer = train()
    shutil.rmtree(target, ignore_errors=True)
    with checked_folder(target) as draft:
        tokenizer.save(draft / TOKENIZER)
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
            `config.max_length_ratio`. Validation sets keep every pair, and need one with text on both sides.
        workers: maximum number of processes that tokenise a large corpus, for tokenizers trained here; the result is
            the same.

    Raises:
        UserError: a file is invalid or no pair is left, and nothing is written; or no line has text on both sides.
    """
    from tqdm import tqdm  # not needed for translating

    with cache(cache_dir) as folder:
        contents = hash_corpora(corpora := spool(corpora, folder))
        hashes, n_pairs = [one.key for one in contents], sum(one.lines[0] for one in contents)
        assert isinstance(config, PairData) or not clean
        limits = config if isinstance(config, PairData) and clean else None
        cleaning = [limits.max_length, limits.max_length_ratio] if limits else []
        settings = [FORMAT, tokenizers.__version__, tokenizer.fingerprint, cleaning]
        target = folder / short_hash(*settings, hashes)
        if not is_complete(target):
            shutil.rmtree(target, ignore_errors=True)
            shown = None if progress else True  # None: only on a terminal
            share = workers if isinstance(tokenizer, Tokenizer) else 1  # others cannot be pickled
            processes = min(share, n_pairs // MIN_PAIRS_PER_WORKER)
            with (
                tqdm(total=n_pairs, desc="tokenising", unit=" lines", disable=shown) as bar,
                tokenising(processes, tokenizer, limits) as tokenise,
            ):
                if n_pairs <= file_hashes.SHARD:
                    build_corpus(target, corpora, contents, tokenise, bar)
                else:
                    shards = [
                        shard_paths(folder, corpus, content, settings)
                        for corpus, content in zip(corpora, contents, strict=True)
                    ]
                    build_in_shards(target, shards, corpora, contents, tokenise, bar)
        prepared = open_prepared(target)
        if not clean and not any(all(map(str.strip, prepared.text(row))) for row in range(len(prepared))):
            raise UserError(f"{', '.join(map(str, corpora))}: no line has text on both sides; check the files")
        return prepared


@contextmanager
def tokenising(workers: int, tokenizer: PairTokenizer, limits: PairData | None) -> Iterator[Tokenise]:
    """A function that tokenises chunk after chunk, in several processes or in this one."""
    if workers > 1:
        with tokenizing_processes(workers, tokenizer, limits) as processes:
            yield processes
    else:
        yield lambda read: (tokenize_pairs(chunk, tokenizer, limits) for chunk in read)


def build_corpus(
    target: Path, corpora: Sequence[Corpus], contents: Sequence[HashedFiles], tokenise: Tokenise, bar: Any
) -> None:
    """Write a prepared corpus and rename it to `target` when it is complete.

    Raises:
        UserError: a file has changed since it was hashed, or no pair is left; then nothing is written.
    """
    with checked_folder(target) as folder:
        pairs = map(read_unchanged, corpora, contents)
        kept, dropped = write_columns(folder, (tokenise(chunks(one)) for one in pairs), bar)
        if not any(kept):
            raise nothing_left_error(corpora, dropped)
        write_meta(folder, kept, dropped)


def shard_paths(folder: Path, corpus: Corpus, content: HashedFiles, settings: Sequence[Any]) -> list[Path]:
    """The folders of the shards of a corpus, by its files up to the end of each, and `settings`."""
    ends = [*zip(*content.marks, strict=True)]
    if content.lines[0] % file_hashes.SHARD:
        ends.append(content.hashes)
    reader = pair_reader(corpus).__name__
    return [folder / short_hash("shard", i, file_hashes.SHARD, settings, reader, end) for i, end in enumerate(ends)]


def build_in_shards(
    target: Path,
    shards: Sequence[Sequence[Path]],
    corpora: Sequence[Corpus],
    contents: Sequence[HashedFiles],
    tokenise: Tokenise,
    bar: Any,
) -> None:
    """Write the shards that are missing, and then the corpus of all.

    Raises:
        UserError: as `build_corpus`; shards before the change stay in the cache.
    """
    for corpus, content, paths in zip(corpora, contents, shards, strict=True):
        build_shards(paths, read_unchanged(corpus, content), content.lines[0], tokenise, bar)
    of_corpora = [[read_meta(path) for path in paths] for paths in shards]
    kept, dropped = [sum(one["kept"][0] for one in metas) for metas in of_corpora], Counter[str]()
    for meta in chain.from_iterable(of_corpora):
        dropped.update(meta["dropped"])
    if not any(kept):
        raise nothing_left_error(corpora, dropped)
    with checked_folder(target) as folder:
        paths = [*chain.from_iterable(shards)]
        for name in LENGTH_FILES:
            with (folder / name).open("wb") as file:
                for path in paths:
                    file.write((path / name).read_bytes())
        write_meta(folder, kept, dropped, shards=[path.name for path in paths])


def build_shards(paths: Sequence[Path], pairs: Iterator[Pair], n_pairs: int, tokenise: Tokenise, bar: Any) -> None:
    """Write the missing shards of a corpus; `pairs` are all of it, and raise an error where the files have changed."""
    size, last = file_hashes.SHARD, len(paths) - 1
    sizes = [min(size, n_pairs - i * size) for i in range(len(paths))]
    missing = [not is_intact(path) for path in paths]
    bar.update(sum(n for n, is_missing in zip(sizes, missing, strict=True) if not is_missing))
    numbered = enumerate(chunks(pairs))
    results = tokenise(chunk for number, chunk in numbered if missing[min(number * CHUNK // size, last)])
    for i, path in enumerate(paths):
        if missing[i]:
            if not is_intact(path):  # else another process has written it meanwhile
                shutil.rmtree(path, ignore_errors=True)
            with checked_folder(path) as folder:
                kept, dropped = write_columns(folder, [islice(results, -(-sizes[i] // CHUNK))], bar)
                if i == last:
                    deque(results, maxlen=0)  # reads the files to their end
                write_meta(folder, kept, dropped)
    deque(results, maxlen=0)


def read_unchanged(corpus: Corpus, known: HashedFiles) -> Iterator[Pair]:
    """The pairs of a corpus; `UserError` if it has changed since it was hashed."""
    return known.read(lambda raw: read_corpus(corpus, raw))


def write_columns(folder: Path, corpora: Iterable[Iterator[Result]], bar: Any) -> tuple[list[int], dict[str, int]]:
    """Write the columns of tokenised chunks; returns the kept pairs of each corpus, and dropped pairs by reason."""
    kept, dropped = list[int](), Counter[str]()
    with ExitStack() as files:
        columns = [files.enter_context(column_writer(folder, name)) for name in COLUMNS]
        for results in corpora:
            kept.append(0)
            for parts, reasons in results:
                for column, rows in zip(columns, parts, strict=bool(parts)):
                    column.append(*rows)
                n_kept = len(parts[0][1]) if parts else 0
                kept[-1] += n_kept
                dropped.update(reasons)
                bar.update(n_kept + reasons.total())
    return kept, dict(dropped)


def write_meta(folder: Path, kept: Sequence[int], dropped: Mapping[str, int], **more: Any) -> None:
    """Write meta.json."""
    meta = {"read": sum(kept) + sum(dropped.values()), "kept": kept, "dropped": dropped, **more}
    (folder / META).write_text(json.dumps(meta), encoding="utf-8")


def read_meta(folder: Path) -> dict[str, Any]:
    """Read meta.json."""
    return json.loads((folder / META).read_text(encoding="utf-8"))


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


def is_complete(folder: Path) -> bool:
    """Whether a prepared corpus and its shards exist, undamaged."""
    return is_intact(folder) and all(is_intact(folder.parent / name) for name in read_meta(folder).get("shards", []))


def open_prepared(folder: Path) -> PreparedCorpus:
    """Map a prepared corpus into memory."""
    meta, columns = read_meta(folder), dict[str, AnyColumn]()
    if shards := [map_columns(folder.parent / name) for name in meta.get("shards", [])]:
        columns.update((name, JoinedColumn([shard[name] for shard in shards])) for name in COLUMNS)
    else:
        columns.update(map_columns(folder))
    return PreparedCorpus(columns, *map_lengths(folder), meta["kept"], meta["read"], meta["dropped"], folder.name)


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
        if not (copied_to.exists() and sha256(copied_to) == sha256(draft)):  # otherwise it may be another user's
            draft.replace(copied_to)
        return CachedCopy(str(copied_to), [display_name(path)])


def sample_evenly(items: Iterator[Item], total: int, n: int, seed: int = 0) -> Iterator[Item]:
    """`n` of `total` items in their order, one at random from each of n stretches of equal length; reads all items.

    >>> list(sample_evenly(iter(range(12)), total=12, n=4))
    [1, 4, 6, 10]
    """
    generator, position = Random(seed), 0
    for stretch in range(n):
        chosen = generator.randrange(stretch * total // n, (stretch + 1) * total // n)
        yield from islice(items, chosen - position, chosen - position + 1)
        position = chosen + 1
    deque(items, maxlen=0)
