"""A server under load compared with offline translation of the same text: sentences a second, latency, memory growth.

    python benchmarks/serving.py MODEL --languages en-de --source FILE [--limit 500] [--turns 3] [--requests 10000]

Contenders take turns: `translate` of all lines in this process, and `headwise serve` in its own process with as many
threads. Clients use 1 to 256 connections with one sentence per request, and 4 connections with a hundred. Every answer
is compared with the offline one. Seconds are shown as wall clock and, because other programs share the machine, as
processor time of the translating process. Clients are in this process, and on few cores take some of the server's time.
Writes `results/serving_*`.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import machine
import torch
from turns import take_turns

import headwise

CONNECTIONS = (1, 4, 16, 64, 256)
LISTED = (4, 100)  # connections, and sentences per request
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and write."""
    options = arguments()
    machine.prepare(options)
    torch.set_num_threads(options.threads)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    lines = Path(options.source).read_text(encoding="utf-8").splitlines()[: options.limit]
    about = machine.description(options.threads)
    offline = Offline(options.model, options.compute)
    wanted = dict(zip(lines, offline.texts(lines), strict=True))
    with serving(options) as process:
        server = Server(process, options.languages, wanted)
        contenders: dict[str, Any] = {"translate": partial(offline.measured, lines)}
        for count in CONNECTIONS:
            contenders[f"{count} x 1"] = partial(server.measured, lines, count, 1)
        contenders[f"{LISTED[0]} x {LISTED[1]}"] = partial(server.measured, lines, *LISTED)
        found = take_turns(contenders, options.turns, warm_up=1)
        memory = server.grown(lines, options.requests)
        process.send_signal(signal.SIGTERM)
        ended = process.wait(60)
    write(about, found, memory, len(lines), f"Lost requests: {server.lost} of {server.asked:,}. Exit code: {ended}.")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--languages", default="en-de")
    parser.add_argument("--source", required=True)
    parser.add_argument("--limit", type=int, default=machine.pick(500, 8))
    parser.add_argument("--turns", type=int, default=machine.pick(3, 1))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--requests", type=int, default=machine.pick(10_000, 50))
    parser.add_argument("--compute", default="int8")
    machine.add_machine_options(parser)
    return parser.parse_args()


def serving(options: argparse.Namespace) -> "subprocess.Popen[str]":
    """The server's process."""
    command = [sys.executable, "-m", "headwise", "serve", options.model, "--languages", options.languages]
    command += ["--port", "0", "--device", "cpu", "--compute", options.compute]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


class Offline:
    """Translation in this process."""

    def __init__(self, model: str, compute: str) -> None:
        self.model, self.compute = headwise.load(model, "cpu"), compute

    def texts(self, lines: Sequence[str]) -> list[str]:
        """Translations."""
        return [one.text for one in self.model.translate(lines, compute=self.compute)]

    def measured(self, lines: Sequence[str], turn: int) -> dict[str, Any]:
        """Seconds for all lines at once."""
        started, computed = time.perf_counter(), time.process_time()
        self.texts(lines)
        return {"wall": time.perf_counter() - started, "cpu": time.process_time() - computed, "latency": []}


class Server:
    """The server process and its clients."""

    def __init__(self, process: "subprocess.Popen[str]", languages: str, wanted: dict[str, str]) -> None:
        assert process.stderr
        self.port = int(json.loads(process.stderr.readline())["url"].rsplit(":", 1)[1].rstrip("/"))
        threading.Thread(target=lambda: [None for _ in process.stderr or ()], daemon=True).start()
        self.process, self.wanted = process, wanted
        self.languages = dict(zip(("source", "target"), languages.split("-"), strict=True))
        self.asked = self.lost = 0  # requests, and those whose connection was closed without an answer

    def measured(self, lines: Sequence[str], connections: int, at_once: int, turn: int) -> dict[str, Any]:
        """Seconds for all lines, `at_once` per request."""
        started, computed = time.perf_counter(), self.seconds()
        latency = asyncio.run(self.load(lines, connections, at_once))
        return {"wall": time.perf_counter() - started, "cpu": self.seconds() - computed, "latency": latency}

    async def load(self, lines: Sequence[str], connections: int, at_once: int) -> list[float]:
        """Seconds of each request."""
        waiting = [list(lines[start : start + at_once]) for start in range(0, len(lines), at_once)][::-1]
        latency: list[float] = []

        async def client() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            while waiting:
                some, started = waiting.pop(), time.perf_counter()
                self.asked += 1
                try:
                    found = await post(reader, writer, {**self.languages, "q": some})
                except (asyncio.IncompleteReadError, ConnectionError):
                    self.lost += 1
                    reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    continue
                latency.append(time.perf_counter() - started)
                assert found["translatedText"] == [self.wanted[line] for line in some], "a mixed-up or different answer"
            writer.close()

        await asyncio.gather(*(client() for _ in range(connections)))
        return latency

    def grown(self, lines: Sequence[str], requests: int) -> dict[int, float]:
        """MiB of the server's memory after a fifth of the requests, two fifths and so on."""
        found, short = {}, sorted(lines, key=len)[: len(lines) // 2]
        for fifth in range(1, 6):
            share = [short[i % len(short)] for i in range(requests // 5)]
            asyncio.run(self.load(share, 64, 1))
            status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
            found[fifth * requests // 5] = int(next(x for x in status if x.startswith("VmRSS")).split()[1]) / 1024
        return found

    def seconds(self) -> float:
        """Processor time of the server."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


async def post(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request on a persistent connection."""
    content = json.dumps(body).encode()
    head = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + content)
    headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(headers.split("content-length: ")[1].split("\r\n")[0])
    answer = json.loads(await reader.readexactly(length))
    assert headers.startswith("http/1.1 200"), answer
    return answer


def write(about: dict[str, Any], found: dict[str, Any], memory: dict[int, float], lines: int, end: str) -> None:
    """Write the result files."""
    rows = []
    for name, turns in found.items():
        walls, cpus = ([turn[clock] for turn in turns] for clock in ("wall", "cpu"))
        shares = [
            statistics.median(base[clock] / turn[clock] for base, turn in zip(found["translate"], turns, strict=True))
            for clock in ("wall", "cpu")
        ]
        latency = sorted(1000 * second for turn in turns for second in turn["latency"])
        p50, p99 = (f"{latency[int(share * (len(latency) - 1))]:.0f}" if latency else "" for share in (0.5, 0.99))
        rates = [f"{lines / statistics.median(seconds):.0f}" for seconds in (walls, cpus)]
        rows.append([name, *rates, *(f"{share:.2f}" for share in shares), p50, p99])
    header = ["connections x sentences", "sentences/s, wall", "sentences/s, processor time", "share of translate, wall"]
    header += ["share, processor time", "p50 ms", "p99 ms"]
    grown = ", ".join(f"{size:.1f} after {count:,}" for count, size in memory.items())
    sections = [
        "Every answer was that of `translate`. The machine was training models at the same time.",
        machine.table(header, rows),
        f"Memory of the server in MiB: {grown} requests. {end}",
    ]
    data = {"seconds": found, "memory": memory}
    machine.write_result(
        machine.result_path("serving"), "A server compared with offline translation", about, sections, data
    )


if __name__ == "__main__":
    main()
