"""`make gpu-check`: does Headwise train and decode on this GPU as on a CPU, and what may be switched on?

    python -m gpu.run [--device cuda] [--seconds 440] [--only NAME ...] [--out build/gpu_check.json]

One line for each result: PASS, FAIL, SKIP, or INFO for figures. The data are generated. A check that fails does not end
the others; those that are left when the time is over are skipped. `--device cpu` is a rehearsal with small sizes and
without the checks of CUDA itself; so it runs among the tests (`test_gpu_check.py`).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from gpu import decoding, speed, training
from gpu.checking import Checks, Skipped

import headwise
from headwise.device import CAPTURE, DEFER, OFFLOAD, PACK, capability_of
from headwise.pytorch.training.packed import has_varlen
from headwise.pytorch.training.utilisation import device_peak


def environment(c: Checks) -> None:
    """Versions, and what this GPU is."""
    about: dict[str, Any] = {"torch": torch.__version__, "python": sys.version, "headwise": headwise.__version__}
    if c.cuda:
        about |= {"gpu": torch.cuda.get_device_name(c.device), "capability": capability_of(str(c.device))}
        about |= {"cuda": torch.version.cuda, "devices": torch.cuda.device_count(), "peak": device_peak(c.device)}
        c.check(has_varlen(c.device), "environment.varlen_attn", "this torch has varlen_attn for this GPU")
        c.check(device_peak(c.device) is not None, "environment.peak", "the peak of this GPU is known")
    c.say("INFO", "environment", about)


# The most valuable first, with the seconds that they take on a GPU.
CHECKS: dict[Callable[[Checks], None], int] = {
    environment: 1,
    training.varlen_kernel: 8,
    training.packed_training: 25,
    training.fused_update: 5,
    speed.speed: 80,
    speed.profile: 20,
    decoding.training_with_validation: 40,
    decoding.captured_decoding: 40,
    decoding.half_decoding: 15,
    speed.throughput: 40,
    training.waits: 25,
    decoding.failed_capture: 30,
    training.curve_translate: 45,
    training.resume: 40,
    training.group: 30,
    training.out_of_memory: 30,
    speed.compilation: 80,
    training.refusals: 20,
    training.curve_lm: 35,
    decoding.language_model: 10,
    training.curve_mlm: 35,
    decoding.threads: 15,
    training.other_settings: 25,
    training.deterministic: 10,
    training.other_device: 25,
    decoding.second_device: 20,
    speed.peer: 20,
    speed.study: 150,
}
ISOLATED = (decoding.failed_capture, training.out_of_memory)  # they may leave CUDA unusable
ON_CUDA = (*ISOLATED, training.waits, training.other_device, decoding.second_device)

# What has to pass before something may be switched on by default.
PROOFS = {
    PACK: ("environment.varlen_attn", "varlen_kernel", "packed_training", "curve.translate", "waits", "pays.packing"),
    DEFER: ("fused_update", "curve.translate", "curve.lm", "resume", "waits", "pays.deferring"),
    CAPTURE: ("captured_decoding", "failed_capture", "training_with_validation",
              "language_model", "threads", "pays.capturing"),
    OFFLOAD: ("group.offload",),
}  # fmt: skip


def allowed(results: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """For each switch the checks that speak against it: those that failed, were skipped, or are missing.

    >>> allowed([{"check": "group.offload", "status": "PASS"}])[OFFLOAD]
    []
    """
    found: dict[str, list[str]] = {}
    judged = [one for one in results if one["status"] in ("PASS", "FAIL", "SKIP")]
    for switch, proofs in PROOFS.items():
        found[switch] = []
        for proof in proofs:
            own = [one for one in judged if f"{one['check']}.".startswith(f"{proof}.")]
            bad = [f"{one['check']} {one['status']}" for one in own if one["status"] != "PASS"]
            found[switch] += bad or ([] if own else [f"{proof} missing"])
    return found


def run(c: Checks, only: Iterable[str] = (), inside: bool = False) -> None:
    """Run the checks; `inside` a process of their own."""
    c.write_corpus()
    only = tuple(only)
    for function, seconds in CHECKS.items():
        name = function.__name__
        if only and name not in only:
            continue
        if function in ON_CUDA and not c.cuda:
            c.say("SKIP", name, "needs CUDA")
            continue
        if c.seconds - c.elapsed() < min(seconds, 40):
            c.say("SKIP", name, "no time left")
            continue
        began = c.elapsed()
        try:
            if function in ISOLATED and not inside:
                in_a_process(c, name, seconds)
            else:
                function(c)
        except Skipped as reason:
            c.say("SKIP", name, reason)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {str(error)[:300]} ({Path(where.filename).name}:{where.lineno})"
            c.say("FAIL", name, what, traceback=traceback.format_exc()[-3000:])
        c.results.append({"check": f"{name}.seconds", "status": "TIME", "detail": round(c.elapsed() - began, 1)})
        if c.cuda:
            torch.cuda.empty_cache()


def in_a_process(c: Checks, name: str, seconds: int) -> None:
    """Run a check in a process of its own, with the trained model, and add its results."""
    out = c.folder / f"{name}.json"
    command = [sys.executable, "-m", "gpu.run", "--device", c.device, "--only", name, "--folder", c.toy.parent]
    words = [*map(str, command), "--out", str(out)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=4 * seconds)
    if not out.is_file():
        c.say("FAIL", name, f"the process ended with {ended.returncode}: {(ended.stdout + ended.stderr)[-400:]}")
        return
    for one in json.loads(out.read_text(encoding="utf-8"))["results"]:
        if one["status"] != "TIME":
            c.say(one.pop("status"), one.pop("check"), **one)


def write_results(c: Checks, out: Path) -> dict[str, int]:
    """Write the results, and which switches they allow; returns the number of results of each kind."""
    counts = {status: sum(one["status"] == status for one in c.results) for status in ("PASS", "FAIL", "SKIP", "INFO")}
    against = {switch: reasons if c.cuda else ["no GPU"] for switch, reasons in allowed(c.results).items()}
    content = {"counts": counts, "seconds": round(c.elapsed(), 1), "against": against, "results": c.results}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(content, indent=1, default=str) + "\n", encoding="utf-8")
    for switch, reasons in against.items():
        print(f"{switch}=1 may be the default" if not reasons else f"{switch}: stays off: {', '.join(reasons)}"[:400])
    print(f"{counts}, in {out}")
    return counts


def main() -> int:
    """Returns 1 if a check failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu for a rehearsal (%(default)s)")
    parser.add_argument("--seconds", type=float, default=440.0, help="in which checks begin (%(default)s)")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="checks to run (all)")
    parser.add_argument("--out", type=Path, default=Path("build/gpu_check.json"), help="results (%(default)s)")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # of the process that has started this one
    options = parser.parse_args()
    if unknown := {*options.only} - {function.__name__ for function in CHECKS}:
        parser.error(f"--only {' '.join(unknown)}: use {', '.join(function.__name__ for function in CHECKS)}")
    if options.device != "cpu" and not torch.cuda.is_available():
        parser.error(f"--device {options.device}: torch found no CUDA device; use --device cpu for a rehearsal")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="gpu check ü ") as folder:  # a blank and an umlaut on purpose
        c = Checks(torch.device(options.device), options.folder or Path(folder), options.seconds)
        run(c, options.only, inside=options.folder is not None)
        return int(write_results(c, options.out)["FAIL"] > 0)


if __name__ == "__main__":
    sys.exit(main())
