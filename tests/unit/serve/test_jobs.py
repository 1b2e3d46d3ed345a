"""Document jobs: states, limits, deadlines, and files that do not outlive them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headwise.documents.segments import SentenceRequest, SentenceTranslation
from headwise.errors import UserError
from headwise.serve.batching import BatchSettings, estimate_tokens
from headwise.serve.document_session import DocumentSession
from headwise.serve.documents import OpenDocuments, in_thread
from headwise.serve.jobs import DocumentJob, JobLimits, JobStore
from headwise.serve.models import SentenceOptions, ServedModel
from headwise.serve.parameters import RequestError
from headwise.serve.progress import JobProgress
from headwise.serve.storage import Storage, StorageLimits
from headwise.serve.translation import translate_documents

PAIR = ("en", "de")
KEPT = StorageLimits()


def with_store(
    folder: Path, use: Callable[[JobStore], Awaitable[Any]], kept: StorageLimits = KEPT, **limits: Any
) -> Any:
    async def whole() -> Any:
        store = JobStore(folder, JobLimits(**limits), Storage(kept))
        try:
            return await use(store)
        finally:
            await store.close()

    return asyncio.run(whole())


async def copy(job: DocumentJob) -> None:
    job.result.write_bytes(job.upload.read_bytes())
    job.report.write_bytes(b"{}")


async def never_end(job: DocumentJob) -> None:
    await asyncio.Event().wait()


async def ended(job: DocumentJob) -> DocumentJob:
    assert job.task
    await asyncio.wait([job.task])
    return job


def names(folder: Path) -> list[str]:
    return sorted(path.suffix for path in folder.iterdir())


def test_a_job_keeps_its_result_and_its_report_until_it_is_deleted(tmp_path: Path) -> None:
    async def use(store: JobStore) -> None:
        job = await store.create("ada", "a.txt", b"A dog.", PAIR, copy)
        assert (job.state, names(tmp_path)) == ("queued", [".upload"])
        await ended(job)
        assert (job.state, job.result.read_bytes(), names(tmp_path)) == ("done", b"A dog.", [".report", ".result"])
        assert store.find("ada", job.id) is job
        await store.delete(job)
        assert names(tmp_path) == []
        with pytest.raises(RequestError, match="no such job"):
            store.find("ada", job.id)

    with_store(tmp_path, use)


def test_a_job_belongs_to_its_key(tmp_path: Path) -> None:
    async def use(store: JobStore) -> None:
        job = await store.create("ada", "a.txt", b"A dog.", PAIR, copy)
        for owner, number in (("bob", job.id), ("", job.id), ("ada", job.id[:-1]), ("ada", "")):
            with pytest.raises(RequestError) as refused:
                store.find(owner, number)
            assert refused.value.status == 404

    with_store(tmp_path, use)


def test_jobs_are_limited_for_a_server_and_for_a_key(tmp_path: Path) -> None:
    async def use(store: JobStore) -> None:
        async def create(owner: str) -> DocumentJob:
            return await store.create(owner, "a.txt", b"A dog.", PAIR, never_end)

        first = await create("ada")
        await create("ada")
        with pytest.raises(RequestError, match="of this API key are waiting") as refused:
            await create("ada")
        assert (refused.value.status, refused.value.headers) == (429, {"retry-after": "10"})
        await create("bob")
        with pytest.raises(RequestError, match="document jobs are waiting"):
            await create("eve")
        await asyncio.sleep(0)
        await store.delete(first)
        await create("ada")
        assert len(names(tmp_path)) == 3

    with_store(tmp_path, use, most=3, per_key=2, running=1)


def test_without_keys_only_the_limit_of_the_server_counts(tmp_path: Path) -> None:
    async def use(store: JobStore) -> None:
        for _ in range(3):
            await store.create("", "a.txt", b"A dog.", PAIR, never_end)

    with_store(tmp_path, use, most=3, per_key=1)


def test_as_many_jobs_run_as_are_allowed(tmp_path: Path) -> None:
    async def use(store: JobStore) -> None:
        jobs = [await store.create("", "a.txt", b"A dog.", PAIR, never_end) for _ in range(3)]
        for _ in range(3):
            await asyncio.sleep(0)
        assert [job.state for job in jobs] == ["reading", "reading", "queued"]
        await store.delete(jobs[0])
        for _ in range(3):
            await asyncio.sleep(0)
        assert [job.state for job in jobs] == ["cancelled", "reading", "reading"]

    with_store(tmp_path, use, running=2)


def test_failures_are_named_and_leave_no_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def refuse(job: DocumentJob) -> None:
        job.result.write_bytes(b"half")
        raise UserError("a.txt, line 2: not valid UTF-8")

    async def fault(job: DocumentJob) -> None:
        raise ValueError(job.upload.read_text())

    async def use(store: JobStore) -> None:
        for work, message in (
            (refuse, "a.txt, line 2: not valid UTF-8"),
            (fault, "Cannot translate the file: ValueError; see the log of the server"),
            (never_end, "not finished within 0.05 s; send a smaller file"),
        ):
            job = await ended(await store.create("", "a.txt", b"A dog.", PAIR, work))
            assert (job.state, job.error, names(tmp_path)) == ("failed", message, [])

    with_store(tmp_path, use, seconds=0.05)
    assert "A dog" not in capsys.readouterr().err


@pytest.mark.parametrize(("kept", "left"), [(StorageLimits(seconds=0.0), 0), (StorageLimits(results=1), 1)])
def test_ended_jobs_expire(tmp_path: Path, kept: StorageLimits, left: int) -> None:
    async def use(store: JobStore) -> None:
        jobs = [await ended(await store.create("", "a.txt", b"A dog.", PAIR, copy)) for _ in range(3)]
        with pytest.raises(RequestError, match="expired"):
            store.find("", jobs[0].id)
        assert names(tmp_path) == [".report", ".result"][: 2 * left]

    with_store(tmp_path, use, kept)


def test_closing_cancels_all_jobs_also_those_that_have_not_begun(tmp_path: Path) -> None:
    async def use(store: JobStore) -> list[DocumentJob]:
        jobs = [await store.create("", "a.txt", b"A dog.", PAIR, never_end) for _ in range(3)]
        await store.close()
        return jobs

    assert [job.state for job in with_store(tmp_path, use, running=1)] == ["cancelled"] * 3
    assert names(tmp_path) == []


def test_progress_never_decreases() -> None:
    progress = JobProgress()
    assert (progress.percent, progress.is_translating) == (0, False)
    progress.request(SentenceRequest(["a", "b", "a"], later=1))
    assert (progress.total, progress.done) == (4, 0)
    progress.request(SentenceRequest(["c", "b"]))  # b needs another method
    assert (progress.total, progress.done, progress.percent) == (4, 2, 50)
    progress.request(None)
    assert (progress.total, progress.done, progress.percent) == (4, 4, 100)
    begun = JobProgress(total=4, done=3)
    begun.request(SentenceRequest(["c", "b"]))
    assert begun.done == 3


class SlowModel(ServedModel):
    """Translates into capital letters, and notes how many sentences are queued and done."""

    supports_markers = False  # type: ignore[assignment]

    def count_tokens(self, sentences: Sequence[str]) -> list[int]:
        return estimate_tokens(sentences)

    def translate(self, sentences: list[str], options: SentenceOptions) -> list[SentenceTranslation]:
        assert self.queue
        self.seen.append((self.queue.waiting + len(sentences), self.progress.done))
        return [SentenceTranslation(text.upper(), source=text, n_tokens=(1, 1)) for text in sentences]


def test_a_job_queues_a_part_of_its_sentences_and_counts_every_batch() -> None:
    async def run() -> tuple[list[bytes], JobProgress, list[tuple[int, int]]]:
        model = SlowModel(Path("m"), (PAIR,), lambda path: None, model=object())
        model.seen, model.progress = [], JobProgress()
        model.open(BatchSettings(wait=0.0, batch_tokens=16, most_waiting=40), lambda sentences, seconds: None)
        documents = OpenDocuments(in_thread(DocumentSession()))
        content = "".join(f"Dog {number}.\n" for number in range(100)).encode()
        await documents.read_file("a.txt", content, PAIR, 9999)
        try:
            written, _ = await translate_documents(model, documents, SentenceOptions(*PAIR), None, model.progress)
        finally:
            await model.close()
        return written, model.progress, model.seen

    (written,), progress, seen = asyncio.run(run())
    queued, done = zip(*seen, strict=True)
    assert written.splitlines()[99] == b"DOG 99." and (progress.total, progress.done) == (100, 100)
    assert max(queued) <= 10 and len(set(done)) == 20 and list(done) == sorted(done)
