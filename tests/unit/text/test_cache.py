"""The cache: shared by users, atomic, cleaned of drafts of killed processes."""

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwise.config.data import TranslationData
from headwise.documents.memory import memories_as_tsv
from headwise.errors import UserError
from headwise.text.files.corpus import parse_corpora
from headwise.text.files.documents import document_tokenizer, prepare_documents
from headwise.text.files.split import ValidationSize, parse_validation_size, split_corpora
from headwise.text.prepared.cache import DRAFT_PREFIX, SUMS, draft_folder, draft_path
from headwise.text.prepared.prepared import prepare, train_tokenizer

CONFIG = TranslationData(vocab_size=280)
OTHER = TranslationData(vocab_size=270)
NOBODY = 65534
PAIRS = [(f"a dog {i}", f"ein Hund {i}") for i in range(40)]
PO = 'msgid "a dog"\nmsgstr "ein Hund"\n'


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user can access, unlike `tmp_path`."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def second_user() -> Iterator[None]:
    """Run as another user without groups."""
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def everything(folder: Path) -> list[str]:
    """Create or read everything that training caches in this folder; returns the keys."""
    cache, files = folder / "cache", parse_corpora([str(folder / "a.tsv")])
    tokenizer = train_tokenizer(files, CONFIG, cache_dir=cache)
    amount = parse_validation_size(["5pairs"])
    assert isinstance(amount, ValidationSize)
    parts = split_corpora(files, amount, cache_dir=cache)
    keys = [prepare(corpora, tokenizer, CONFIG, cache, progress=False).key for corpora in (files, parts.train)]
    keys.append(prepare_documents([str(folder / "a.tsv")], document_tokenizer(tokenizer), cache, progress=False).key)
    return [*keys, *memories_as_tsv([str(folder / "a.po")])[0]]


@pytest.fixture
def filled(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWISE_CACHE", str(shared / "cache"))
    (shared / "a.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in PAIRS), encoding="utf-8")
    (shared / "a.po").write_text(PO, encoding="utf-8")
    return shared


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root, to become another user")
def test_a_second_user_reads_the_cache_of_the_first(filled: Path) -> None:
    with umask(0o022):
        made = everything(filled)
    names = sorted(path.name for path in (filled / "cache").iterdir())
    with second_user():
        assert everything(filled) == made
        with pytest.raises(UserError, match=r"cannot be used \(Permission denied: .*set HEADWISE_CACHE"):
            train_tokenizer(parse_corpora([str(filled / "a.tsv")]), OTHER, cache_dir=filled / "cache")
    assert sorted(path.name for path in (filled / "cache").iterdir()) == names


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
@pytest.mark.parametrize(("mask", "folder_mode", "file_mode"), [(0o022, 0o755, 0o644), (0o002, 0o775, 0o664)])
def test_modes_follow_the_umask_and_the_group_the_folder(
    mask: int, folder_mode: int, file_mode: int, filled: Path
) -> None:
    cache = filled / "cache"
    cache.mkdir()
    group = NOBODY if os.geteuid() == 0 else os.getegid()
    os.chown(cache, -1, group)
    cache.chmod(0o2775)
    with umask(mask):
        everything(filled)
    found = [*cache.rglob("*")]
    assert {path.stat().st_gid for path in found} == {group}
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_dir()} == {0o2000 | folder_mode}
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_file()} == {file_mode}


WAITING = """
import sys
from pathlib import Path
from headwise.config.data import TranslationData
from headwise.text.prepared import prepared
from headwise.text.files.corpus import Corpus
from headwise.text.tokens.tokenizer import Tokenizer

def pack(*given):
    print("writing", flush=True)
    sys.stdin.read(1)
    return original(*given)

original, prepared.tokenize_pairs = prepared.tokenize_pairs, pack
config = TranslationData(vocab_size=270)
tokenizer = Tokenizer.train(["a dog", "ein Hund"], config)
print(prepared.prepare([Corpus((sys.argv[1],))], tokenizer, config, Path(sys.argv[2]), progress=False).key)
"""


@contextmanager
def preparing(path: Path, cache: Path) -> "Iterator[subprocess.Popen[str]]":
    """Another process that tokenises until something is written to its standard input."""
    command = [sys.executable, "-c", WAITING, str(path), str(cache)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout and other.stdout.readline() == "writing\n"
            yield other
        finally:
            other.kill()


def drafts(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.glob(f"{DRAFT_PREFIX}*"))


def test_everything_that_is_damaged_is_made_again(filled: Path) -> None:
    """Also what no other test damages: documents, splits, copies of memories."""
    made = everything(filled)
    files = {path: path.read_bytes() for path in (filled / "cache").rglob("*") if path.is_file()}
    for path, content in files.items():
        if path.name != SUMS:
            path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.warns(UserWarning, match="damaged in the cache") as warned:
        assert everything(filled) == made
    assert {path: path.read_bytes() for path in (filled / "cache").rglob("*") if path.is_file()} == files
    messages = " ".join(str(one.message) for one in warned)
    assert all(name in messages for name in ("ends.values", "meta.json", "tokenizer.json"))


def test_drafts_of_ended_processes_are_removed_and_others_stay(filled: Path) -> None:
    cache = filled / "cache"
    with preparing(filled / "a.tsv", cache) as killed, preparing(filled / "a.tsv", cache) as living:
        both = drafts(cache)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert len(both) == 2 and drafts(cache) == both and [*cache.glob(f"{DRAFT_PREFIX}*/*/src.values")]
        everything(filled)
        (left,) = drafts(cache)
        assert left in both
        out, _ = living.communicate("x")
        assert living.returncode == 0 and (cache / out.strip()).is_dir() and drafts(cache) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has other locks")
@pytest.mark.parametrize("number", sorted({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP}))
def test_a_file_system_without_locks_is_used_and_keeps_drafts(
    filled: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Nobody knows there whether the writer of a draft lives."""

    def refuse(*given: object) -> None:
        raise OSError(number, os.strerror(number))

    with draft_path(filled, "left") as draft:
        left = draft.parent
        monkeypatch.setattr("fcntl.flock", refuse)
        shutil.copytree(left, filled / "cache" / left.name)
        assert everything(filled) == everything(filled)
        monkeypatch.undo()
    assert drafts(filled / "cache") == [left.name]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_other_errors_of_a_lock_are_errors(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("fcntl.flock", fail)
    with pytest.raises(UserError, match="the cache cannot be used"):
        train_tokenizer(parse_corpora([str(filled / "a.tsv")]), OTHER, cache_dir=filled / "cache")


def test_a_failed_draft_is_deleted(tmp_path: Path) -> None:
    for make in (draft_path(tmp_path, "name"), draft_folder(tmp_path / "name", Path.is_dir)):
        with pytest.raises(KeyboardInterrupt), make as draft:
            raise KeyboardInterrupt(draft)
        assert [*tmp_path.iterdir()] == []


def test_the_second_process_with_the_same_content_keeps_the_first(tmp_path: Path) -> None:
    target = tmp_path / "name"
    with draft_folder(target, lambda folder: (folder / "whole").exists()) as mine:
        (mine / "mine").touch()
        target.mkdir()
        (target / "whole").touch()
    assert [path.name for path in target.iterdir()] == ["whole"]
    with pytest.raises(OSError), draft_folder(target, lambda folder: False):  # whatever the system says
        pass


def test_an_empty_draft_of_a_process_that_had_no_lock_yet_is_removed(tmp_path: Path) -> None:
    (tmp_path / f"{DRAFT_PREFIX}empty").mkdir()
    (tmp_path / f"{DRAFT_PREFIX}foreign").mkdir()
    (tmp_path / f"{DRAFT_PREFIX}foreign" / "file").touch()
    with draft_path(tmp_path, "name"):
        pass
    assert drafts(tmp_path) == [f"{DRAFT_PREFIX}foreign"]
