"""Lines translated by a Ray cluster of two simulated machines: the same bytes as without it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from libretranslatepy import LibreTranslateAPI
from waiting import wait_until

import headwise
from headwise.errors import UserError
from headwise.serve.cluster.actors import ClusterExecutor
from headwise.serve.cluster.connection import live_nodes, machine_name, this_node
from headwise.serve.cluster.folders import ClusterFolder, cluster_folder
from headwise.serve.cluster.shards import ResultShards
from headwise.serve.cluster.translation import ClusterModel, ModelLocation

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Ray leaves sockets and logs to the end
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two machines with a processor each."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    ray.init(made.address, log_to_driver=False, logging_level="error")
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, task: Callable[..., Any]) -> tuple[Path, Path]:
    """More lines than one chunk has, and their expected translations."""
    folder = tmp_path_factory.mktemp("lines")
    pairs = task(1100, 31)
    for name, side in zip(("in.txt", "ref.txt"), zip(*pairs, strict=True), strict=True):
        (folder / name).write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return folder / "in.txt", folder / "ref.txt"


@pytest.fixture
def actors(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterExecutor]:
    """Processes shared by all commands of a test, because starting them imports torch."""
    import ray

    with ClusterExecutor(ray, gpu=False) as kept:
        monkeypatch.setattr("headwise.cli.cluster.ClusterExecutor", lambda *_: nullcontext(kept))
        yield kept


def test_a_cluster_writes_what_one_machine_writes(
    actors: ClusterExecutor, cli: Any, model_path: Path, files: tuple[Path, Path], tmp_path: Path
) -> None:
    text, reference = files
    for verb, arguments, output in (
        ("translate", [text, "--format", "jsonl"], "-o"),
        ("distill", ["--train", text, reference], "-o"),
        ("backtranslate", ["--text", text, "--tag", "<bt>"], "-o"),
        ("score", ["--source", text, "--target", reference], "-o"),
        ("evaluate", ["--source", text, "--reference", reference], "--save"),
    ):
        alone, shared = (tmp_path / f"{verb}-{how}.jsonl" for how in ("alone", "shared"))
        arguments += [] if verb == "score" else ["--beam-size", "2"]
        runs = [
            cli(verb, model_path, *arguments, output, path, "--device", "cpu", *more)
            for path, more in ((alone, ()), (shared, ("--ray",)))
        ]
        assert [one.code for one in runs] == [0, 0], runs
        assert "Ray has 2 machines with 2 CPUs" in runs[1].err and runs[0].out == runs[1].out
        assert alone.read_bytes() == shared.read_bytes() != b"", verb
    assert not list(tmp_path.glob("*.parts")) and actors.size == 2


def working() -> list[int]:
    """Process numbers of working processes."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes().startswith(b"ray::ClusterWorker.run"):
                found.append(int(entry.parent.name))
        except OSError:  # the process has ended
            continue
    return found


def test_a_killed_process_is_replaced(cluster: Any, model_path: Path, task: Callable[..., Any]) -> None:
    import ray

    lines, killed = [source for source, _ in task(900, 32)], []

    def recorded() -> Iterator[str]:
        for number, line in enumerate(lines):
            if number == 600:
                killed.append(wait_until(working)[0])
                os.kill(killed[0], signal.SIGKILL)
            yield line

    model = headwise.load(model_path, "cpu")
    with ClusterExecutor(ray, gpu=False) as actors:
        location = ModelLocation((cluster_folder(model_path, this_node(ray)),), "cpu", "auto")
        shared = ClusterModel(model, location, actors, ResultShards(None))
        found = [one.text for one in shared.translate_lines(recorded(), chunk_lines=100)]
    assert killed and found == [one.text for one in model.translate(lines)]


@pytest.fixture
def without_model(cluster: Any, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A third machine, with a working folder of its own, whose temporary folder has no room for models."""
    import ray

    known = {node["NodeID"] for node in ray.nodes()}
    deep = tmp_path.joinpath(*"abcdefghijkl")  # `..` leads to no model
    deep.mkdir(parents=True)
    (tmp_path / f"headwise-models-{os.getuid()}").write_text("a file where a folder should be")
    start = ["ray", "start", f"--address={cluster.address}", "--num-cpus=1", "--disable-usage-stats", "--block"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(start, cwd=deep, env=environment, stdout=subprocess.DEVNULL) as machine:
        try:
            while not (new := [node for node in live_nodes(ray) if node["NodeID"] not in known]):
                assert machine.poll() is None
                time.sleep(0.1)
            yield new[0]
        finally:
            machine.send_signal(signal.SIGTERM)
            machine.wait()
    while len(live_nodes(ray)) > 2:  # the next test counts them
        time.sleep(0.1)


def test_a_machine_that_cannot_receive_the_model_is_named_and_left_out(
    without_model: dict[str, Any], model_path: Path, task: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    import ray

    model, lines = headwise.load(model_path, "cpu"), [source for source, _ in task(900, 34)]
    path = f"/proc/self/cwd/{os.path.relpath(model_path)}"
    loading = ModelLocation((cluster_folder(path, this_node(ray)),), "cpu", "auto")
    with ClusterExecutor(ray, gpu=False) as actors:
        shared = ClusterModel(model, loading, actors, ResultShards(None))
        found = [one.text for one in shared.translate_lines(lines, chunk_lines=30)]
    assert found == [one.text for one in model.translate(lines)]
    (complaint,) = [line for line in capfd.readouterr().err.splitlines() if "--ray" in line]
    assert complaint.startswith(f"headwise: --ray: {machine_name(without_model)} is not used: ")
    assert "cannot be written" in complaint


def test_machines_without_the_model_are_named_in_one_line(cluster: Any, model_path: Path, tmp_path: Path) -> None:
    import ray

    model, lost = headwise.load(model_path, "cpu"), str(tmp_path / "nowhere")
    folder = ClusterFolder(lost, this_node(ray), (("config.json", 1, "0" * 64),))
    loading = ModelLocation((folder,), "cpu", "auto")
    for most in (0, 1):  # one process is also tried elsewhere
        with ClusterExecutor(ray, gpu=False, most=most) as actors:
            shared = ClusterModel(model, loading, actors, ResultShards(None))
            with pytest.raises(UserError) as raised:
                list(shared.translate_lines(["a b"] * 50, chunk_lines=5))
            assert str(raised.value).count("nowhere: cannot be copied to this machine") == len(live_nodes(ray)) == 2


def test_a_cluster_of_the_command_alone_leaves_no_token_behind(
    cli: Any, model_path: Path, tmp_path: Path, task: Callable[..., Any]
) -> None:
    """Ray would write one, and `ray start --head` on this machine would then require it from others."""
    pytest.importorskip("ray")
    (tmp_path / "in.txt").write_text("".join(f"{source}\n" for source, _ in task(5, 35)), encoding="utf-8")
    command = ["translate", str(model_path), str(tmp_path / "in.txt"), "--device", "cpu", "--workers", "1"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    environment |= {"HOME": str(tmp_path / "home")}
    (tmp_path / "home").mkdir()
    program = [sys.executable, "-m", "headwise", *command, "--ray"]
    ran = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == cli(*command[:-2]).out and not [*(tmp_path / "home").rglob("auth_token")]


def test_errors_of_work_and_of_processes(cluster: Any) -> None:
    import ray

    with ClusterExecutor(ray, gpu=False) as actors:
        assert actors.submit(int, "3").result() == 3
        with pytest.raises(ValueError, match="invalid literal"):
            actors.submit(int, "three").result()
        with pytest.raises(UserError, match="3 workers died while processing the same lines"):
            actors.submit(os._exit, 1).result()
        before = actors.size
        node = cluster.add_node(num_cpus=1)
        time.sleep(1.1)  # it checks once a second
        assert actors.submit(int, "4").result() == 4 and (before, actors.size) == (2, 3)
        cluster.remove_node(node)
    while len(live_nodes(ray)) > 2:
        time.sleep(0.1)
    assert len(ray.nodes()) > 2  # dead machines are listed but not counted


def test_a_killed_command_is_resumed(
    cluster: Any, cli: Any, model_path: Path, task: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, out, whole = (tmp_path / name for name in ("in.txt", "out.txt", "whole.txt"))
    text.write_text("".join(f"{source}\n" for source, _ in task(6000, 33)), encoding="utf-8")
    command = ["translate", str(model_path), str(text), "--device", "cpu", "--beam-size", "1"]
    shared = [*command, "-o", str(out), "--ray", cluster.address]
    program = subprocess.Popen([sys.executable, "-m", "headwise", *shared], stderr=subprocess.DEVNULL)
    parts = tmp_path / "out.txt.parts"
    while len(list(parts.glob("0*.jsonl"))) < 2:
        assert program.poll() is None
        time.sleep(0.005)
    program.kill()
    program.wait()
    done = len(list(parts.glob("0*.jsonl")))
    assert not out.exists() and 2 <= done < 6

    submitted: list[Any] = []
    submit = ClusterExecutor.submit
    monkeypatch.setattr(ClusterExecutor, "submit", lambda *given: (submitted.append(given), submit(*given))[1])
    ran = cli(*shared)
    assert ran.code == 0, ran.err
    assert len(submitted) == 6 - done and not parts.exists()
    assert cli(*command, "-o", str(whole)).code == 0 and whole.read_bytes() == out.read_bytes()


def test_replicas_of_a_server(cluster: Any, model_path: Path, task: Callable[..., Any], tmp_path: Path) -> None:
    """With a glossary, a memory, and a pair that is translated through a third language."""
    model = headwise.load(model_path, "cpu")
    asked = [[source for source, _ in task(3, seed)] for seed in range(24)]
    wanted = [[one.text for one in model.translate(some)] for some in asked]
    (tmp_path / "terms.de-fr.tsv").write_text("a\tj\n")
    (tmp_path / "m.en-fr.po").write_text('msgid "a b c d e."\nmsgstr "stored."\n')
    files = ["--glossary", str(tmp_path / "terms.de-fr.tsv"), "--memory", str(tmp_path / "m.en-fr.po")]
    command = ["serve", str(model_path), str(model_path), "--languages", "en-de", "de-fr", "--pivot", "de", *files]
    command = [sys.executable, "-m", "headwise", *command, "--device", "cpu", "--port", "0", "--replicas", "2"]
    with subprocess.Popen([*command, "--ray", cluster.address], stderr=subprocess.PIPE, text=True) as program:
        try:
            assert program.stderr
            begun = next(json.loads(line) for line in program.stderr if line.startswith("{"))
            assert begun["replicas"] == 2
            client = LibreTranslateAPI(begun["url"])
            with ThreadPoolExecutor(8) as clients:
                found = list(clients.map(lambda some: [client.translate(text, "en", "de") for text in some], asked))
            assert found == wanted
            assert [language["code"] for language in client.languages()] == ["en", "de", "fr"]
            (through,) = model.translate([model.translate(["a b c"])[0].text], glossary=[("a", "j")])
            assert [client.translate(text, "en", "fr") for text in ("a b c", "a b c d e.")] == [through.text, "stored."]
            assert "j" in through.text
            program.send_signal(signal.SIGTERM)
            assert program.wait(60) == 0
        finally:
            program.kill()


def test_a_missing_cluster_is_one_line(cli: Any, model_path: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "in.txt").write_text("a b\n")
    program = [sys.executable, "-m", "headwise", "translate", str(model_path), str(tmp_path / "in.txt")]
    ran = subprocess.run([*program, "--ray", "127.0.0.1:9"], capture_output=True, text=True, check=False)
    assert ran.returncode == 2 and "--ray 127.0.0.1:9" in ran.stderr.splitlines()[-1] and "Traceback" not in ran.stderr


SMALL = [
    "model.d_model=16",
    "model.d_ff=32",
    "model.n_heads=2",
    "model.n_decoder_layers=1",
    "data.vocab_size=300",
    "data.block_length=32",
    "train.tokens_per_batch=900",
]


def test_a_killed_sweep_is_resumed_with_ordinary_runs(
    cluster: Any, cli: Any, task: Callable[..., Any], tmp_path: Path
) -> None:
    """With language models in a family's layout; sweeps are not only for translation models."""
    out, plain, text = tmp_path / "sweep", tmp_path / "plain", tmp_path / "text.txt"
    text.write_text("".join(f"{source}\n" for source, _ in task(600, 41)), encoding="utf-8")
    files = ["--train", str(text), "--valid", "5%"]
    settings = [*SMALL, "train.max_steps=150", "train.validate_every=50", "train.warmup_steps=20"]
    options = [*files, "--out", str(out), "--device", "cpu", "--to-the-end", "--ray", cluster.address]
    command = ["sweep", "gpt", *options, "--set", *settings, "train.seed=1,2"]
    program = subprocess.Popen([sys.executable, "-m", "headwise", *command], stderr=subprocess.DEVNULL)
    while not list(out.glob("*/checkpoints/step-*")):
        assert program.poll() is None
        time.sleep(0.01)
    program.kill()
    program.wait()
    assert "is not empty; add --resume" in cli(*command).complaint

    ran = cli(*command, "--resume")
    assert ran.code == 0, ran.err
    assert (
        "| seed-1 |    2 |" in ran.out and "validation loss" in ran.out and (out / "results.md").read_text() == ran.out
    )
    assert (out / "curves.svg").read_text().startswith("<?xml") and not (out / ".ray").exists()
    ordinary = ["train", "--recipe", "gpt", *files, "--out", plain, "--device", "cpu"]
    assert cli(*ordinary, "--set", "train.threads=1", *settings, "train.seed=2").code == 0
    assert (plain / "model.safetensors").read_bytes() == (out / "seed-2" / "model.safetensors").read_bytes()
    assert "resuming after step" in "".join(path.read_text() for path in out.glob("*.log"))
