"""Hold out validation pairs from the training files: `--valid 1%` or `--valid 500pairs`.

No sentence of a validation pair occurs in a training pair, on either side. Therefore whole groups of pairs that share
sentences are held out (`sentences.py` defines when two are the same). The groups are chosen by hashes, so the same
pairs give the same split in any order, with any seed, and in a resumed run. If groups are too large, for example
because there are few different targets, single pairs are held out, and pairs that share a sentence with them are
dropped.

Only hashes are kept in memory, not texts. Both parts are written to the cache.
"""

import json
import re
import shutil
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headwise.errors import UserError
from headwise.text.files.corpus import Corpus, read_corpus
from headwise.text.files.labelled_texts import read_labelled
from headwise.text.files.sentences import EMPTY, SentenceKeys, pair_keys, sentence_key, splitmix64
from headwise.text.files.sources import STANDARD_INPUT, CachedCopy, Pair, count_of, display_name, names_of
from headwise.text.prepared.cache import cache, checked_folder, is_intact
from headwise.text.prepared.file_hashes import HashedFiles, hash_corpora, short_hash
from headwise.text.prepared.prepared import META, spool

Labels = NDArray[np.int64]
Flags = NDArray[np.bool_]
Known = tuple[Corpus, HashedFiles]  # a corpus and its hashes

FORMAT = 2  # version of the cached files; raise it when the same files give another split
LARGE = 10  # groups above a tenth of the requested size are taken last
SHARE_PATTERN = re.compile(r"(\d+(?:\.\d+)?|\.\d+)%")
COUNT_PATTERN = re.compile(r"(\d+)(?:pair|text|image|line|example)s?")


@dataclass(frozen=True)
class ValidationSize:
    """The number of pairs to hold out."""

    text: str  # as the user wrote it
    share: float = 0.0  # of all pairs
    pairs: int = 0
    option: str = "--valid"  # that the user wrote it after

    def __str__(self) -> str:
        return f"{self.option} {self.text}"

    def of(self, total: int, noun: str = "pair") -> int:
        """The number of pairs, or what `noun` says, to hold out of `total`; at least one."""
        wanted = self.pairs or max(1, round(self.share * total))
        if wanted >= total:
            raise UserError(f"{self}: the training files hold {count_of(total, noun)}; leave some to train on")
        return wanted


def parse_validation_size(arguments: Sequence[str]) -> ValidationSize | None:
    """Parse the argument of `--valid`; None if it is a list of files.

    >>> [(size.share, size.pairs) for size in map(parse_validation_size, (["1%"], ["500pairs"])) if size]
    [(0.01, 0), (0.0, 500)]
    >>> parse_validation_size(["valid.en", "valid.de"]), parse_validation_size(["valid.tsv"])
    (None, None)
    """
    patterns = (SHARE_PATTERN, COUNT_PATTERN)
    if len(arguments) != 1 or not (arguments[0].isdecimal() or any(one.fullmatch(arguments[0]) for one in patterns)):
        return None
    return parse_held_out_size(arguments[0], "--valid")


def parse_held_out_size(text: str, option: str) -> ValidationSize:
    """Parse a share or a number of pairs, the value of `option`; `UserError` for anything else."""
    share, count = SHARE_PATTERN.fullmatch(text), COUNT_PATTERN.fullmatch(text)
    if share and 0 < float(share[1]) < 100:
        return ValidationSize(text, float(share[1]) / 100, option=option)
    if count and int(count[1]):
        return ValidationSize(text, pairs=int(count[1]), option=option)
    raise UserError(f"{option} {text}: is not a valid size; write 1% for a share, 500pairs (or 500images) for a number")


@dataclass(frozen=True)
class Split:
    """Both parts, as files in the cache."""

    train: list[Corpus]  # the rest of each corpus
    valid: Corpus
    taken: int  # validation pairs
    dropped: int  # pairs in neither part, because they share a sentence with a validation pair


def split_corpora(
    corpora: Sequence[Corpus],
    size: ValidationSize,
    labelled: bool = False,
    cache_dir: Path | None = None,
    added: Sequence[Corpus] = (),
) -> Split:
    """Split training files into training and validation pairs; uses the cache.

    Args:
        labelled: targets are labels, which may repeat; the split is stratified by label.
        added: more training files, which do not change the validation pairs and the rest of `corpora`.

    Raises:
        UserError: a file can be read only once or is invalid, or no training pairs would be left.
    """
    n_first, corpora = len(corpora), [*corpora, *added]
    once = [p for corpus in corpora for p in corpus.paths if p == STANDARD_INPUT or Path(p).is_fifo()]
    if once:
        raise UserError(f"{size}: {display_name(once[0])} can be read only once; write it to a file")
    with cache(cache_dir) as folder:
        contents = hash_corpora(corpora := spool(corpora, folder))
        wanted = [size.share, size.pairs, labelled, *([len(added)] if added else [])]
        target = folder / f"split-{short_hash(FORMAT, wanted, [one.key for one in contents])}"
        ending = ".tsv" if labelled else ".jsonl"
        parts = [target / f"{name}{ending}" for name in (*(f"train-{i + 1}" for i in range(len(corpora))), "valid")]
        names = [path.name for path in parts]
        if not is_intact(target):
            shutil.rmtree(target, ignore_errors=True)
            known = list(zip(corpora, contents, strict=True))
            _write(target, (known[:n_first], known[n_first:]), size, labelled, names)
        counts = json.loads((target / META).read_text(encoding="utf-8"))
        origins = [[name for path in corpus.paths for name in names_of(path)] for corpus in corpora]
        origins.append([f"{size.text} of {', '.join(map(str, corpora[:n_first]))}"])
        *train, valid = (Corpus((CachedCopy(str(path), of),)) for path, of in zip(parts, origins, strict=True))
        return Split([corpus for corpus in train if Path(*corpus.paths).stat().st_size], valid, **counts)


def _write(
    target: Path,
    corpora: tuple[Sequence[Known], Sequence[Known]],
    size: ValidationSize,
    labelled: bool,
    names: Sequence[str],
) -> None:
    valid, dropped = _choose(*corpora, size, labelled)
    if not valid.any():
        missing = (
            "line of the training files has a text" if labelled else "pair of the training files has text on both sides"
        )
        raise UserError(f"{size}: no {missing}; check the files")
    if (valid | dropped).all():
        every = "text equals a validation text" if labelled else "pair shares a sentence with a validation pair"
        raise UserError(
            f"{size}: every {every}, so none is left to train on; hold out fewer, or give a validation file"
        )
    with checked_folder(target) as draft:
        with ExitStack() as files:
            parts = [files.enter_context(open(draft / name, "w", encoding="utf-8", newline="")) for name in names]
            write = _labelled_line if labelled else _json_line
            pairs = ((i, pair) for i, corpus in enumerate(chain(*corpora)) for pair in _read([corpus], labelled))
            for (i, pair), is_valid, is_dropped in zip(pairs, valid, dropped, strict=True):
                if not is_dropped:
                    parts[-1 if is_valid else i].write(write(pair))
        counts = {"taken": int(valid.sum()), "dropped": int(dropped.sum())}
        (draft / META).write_text(json.dumps(counts), encoding="utf-8")


def _read(corpora: Sequence[Known], labelled: bool) -> Iterator[Pair]:
    """All pairs; `UserError` if a file has changed since it was hashed."""
    return chain.from_iterable(_read_one(corpus, known, labelled) for corpus, known in corpora)


def _read_one(corpus: Corpus, known: HashedFiles, labelled: bool) -> Iterator[Pair]:
    return known.read(lambda raw: read_labelled(corpus.paths[0], raw) if labelled else read_corpus(corpus, raw))


def _json_line(pair: Pair) -> str:
    """JSON, because a text may contain a line separator."""
    return json.dumps({"src": pair[0], "tgt": pair[1]}, ensure_ascii=False) + "\n"


def _labelled_line(pair: Pair) -> str:
    return f"{pair[0]}\t{pair[1]}\n"


def _choose(
    corpora: Sequence[Known], added: Sequence[Known], size: ValidationSize, labelled: bool
) -> tuple[Flags, Flags]:
    """Which pairs of the files are validation pairs, and which are dropped."""
    src, tgt, labels = _keys(corpora, labelled)
    valid, dropped = choose_pairs(src, tgt, labels, size.of(len(src), "text" if labelled else "pair"))
    sides = _keys(added, labelled)[:2]
    shared = np.isin(sides, np.concatenate([src[valid], tgt[valid]])).any(0)
    return np.concatenate([valid, np.zeros_like(shared)]), np.concatenate([dropped, shared])


def _keys(corpora: Sequence[Known], labelled: bool) -> tuple[SentenceKeys, SentenceKeys, Labels]:
    """The keys of both sides of all pairs, and the numbers of their labels."""
    src, tgt, labels = array("Q"), array("Q"), array("q")
    known: dict[str, int] = {}
    for source, target in _read(corpora, labelled):
        src.append(sentence_key(source))
        tgt.append(src[-1] if labelled else sentence_key(target))
        labels.append(known.setdefault(target, len(known)) if labelled else 0)
    return np.array(src, np.uint64), np.array(tgt, np.uint64), np.array(labels, np.int64)


def choose_pairs(src: SentenceKeys, tgt: SentenceKeys, labels: Labels, wanted: int) -> tuple[Flags, Flags]:
    """Choose validation pairs, and the pairs to drop because they share a sentence with one.

    Args:
        src, tgt: keys of the sentences; `EMPTY` for a blank side.
        labels: a number for each pair; the choice is stratified by label.
        wanted: number of validation pairs; fewer are taken if fewer have two sides.
    """
    usable = (src != EMPTY) & (tgt != EMPTY)
    src, tgt = np.where(src == EMPTY, tgt, src), np.where(tgt == EMPTY, src, tgt)  # a blank side connects nothing
    sentences, ids = np.unique(np.concatenate([src, tgt]), return_inverse=True)
    left, right = ids[: len(src)], ids[len(src) :]
    group = connected(left, right, len(sentences))[left]
    taken = np.zeros(len(src), np.bool_)
    for label, count in enumerate(_shares(np.bincount(labels), wanted)):
        rest = count - _take_groups(taken, group, usable, labels == label, sentences, count)
        if rest:
            _take_pairs(taken, left, right, usable & (labels == label), pair_keys(src, tgt), rest)
    inside = np.zeros(len(sentences), np.bool_)
    inside[left[taken]] = inside[right[taken]] = True
    return taken, ~taken & (inside[left] | inside[right])


def _shares(counts: Labels, wanted: int) -> list[int]:
    """Divide `wanted` in proportion to `counts`, by largest remainders.

    >>> _shares(np.array([70, 20, 10]), 5)
    [4, 1, 0]
    """
    exact = counts * (wanted / counts.sum())
    whole = np.floor(exact).astype(np.int64)
    order = np.argsort(whole - exact, kind="stable")
    whole[order[: wanted - whole.sum()]] += 1
    return whole.tolist()


def connected(left: Labels, right: Labels, n: int) -> Labels:
    """Connected components: for each of `n` sentences the smallest id it is linked to by pairs (left, right).

    >>> connected(np.array([0, 2, 4]), np.array([1, 1, 4]), 5).tolist()
    [0, 0, 0, 3, 4]
    """
    root = np.arange(n)
    while True:
        least = np.minimum(root[left], root[right])
        joined = root.copy()
        for ids in (left, right, root[left], root[right]):  # hook the sentences and their roots
            np.minimum.at(joined, ids, least)
        joined = joined[joined]
        if np.array_equal(joined, root):
            return root
        root = joined


def _take_groups(
    taken: Flags, group: Labels, usable: Flags, of_label: Flags, sentences: SentenceKeys, wanted: int
) -> int:
    """Take whole groups whose first pair has the label, up to `wanted` pairs; returns how many pairs they have.

    Groups are taken in the order of their hashes, so every group is equally likely whatever its size.
    """
    names, first, size = np.unique(group, return_index=True, return_counts=True)
    unusable = np.bincount(group, weights=~usable, minlength=len(sentences))[names] > 0
    free = np.flatnonzero(of_label[first] & ~unusable & ~taken[first] & (size <= wanted))
    order = free[np.lexsort((splitmix64(sentences[names[free]]), size[free] > max(1, wanted // LARGE)))]
    chosen, room = [], wanted
    for number, pairs in zip(names[order].tolist(), size[order].tolist(), strict=True):
        if pairs <= room:
            chosen.append(number)
            room -= pairs
        if not room:
            break
    taken |= np.isin(group, chosen)
    return wanted - room


def _take_pairs(taken: Flags, left: Labels, right: Labels, usable: Flags, keys: SentenceKeys, wanted: int) -> None:
    """Take single pairs; first those whose sentences occur in the fewest other pairs, which will be dropped."""
    uses = np.bincount(np.concatenate([left, right]))
    free = np.flatnonzero(usable & ~taken)
    order = np.lexsort((keys[free], uses[left[free]] + uses[right[free]]))
    taken[free[order[:wanted]]] = True
