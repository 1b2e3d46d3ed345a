"""`make mutants`: does a test fail when the code is wrong? 120 mutations, each with the tests that reach it.

    run.py [--number N] [--seed N] [--jobs N] [--seconds N] [--again]

Builds a tree with all mutations (`sites.py`), runs the tests of `make test` in it once to see which of them reach which
mutation and how long they take, and then, for each mutation, the tests that reach it (`judge.py`), fastest first, up to
--seconds of tests. Writes `results.tsv`; takes about three times as long as `make test`. A mutation that only runs when
modules are imported, or in no test, counts as not reached. --again keeps the tree and the first run.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from pathlib import Path

from mutants.sites import PACKAGE, Site, all_sites, chosen, with_mutants

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
WORK = ROOT / "build" / "mutants"
TREE = WORK / "tree"
# What `make test` runs.
PYTEST = [sys.executable, "-m", "pytest", "-q", "-m", "not distributed and not compiles and not thorough"]
PYTEST += ["--ignore", "tests/architecture"]


def c_sources() -> tuple[str, ...]:
    from headwise.runtime.native.build import SOURCES

    return SOURCES


def build_tree(sites: list[Site]) -> None:
    """A copy of the working tree with the mutations, and its compiled library."""
    shutil.rmtree(WORK, ignore_errors=True)
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, TREE / name)
    by_file: dict[str, list[tuple[int, Site]]] = defaultdict(list)
    for number, site in enumerate(sites):
        by_file[site.file].append((number, site))
    for file, own in by_file.items():
        path = TREE / file
        path.write_text(with_mutants(path.read_text(encoding="utf-8"), own), encoding="utf-8")
    shutil.copy(HERE / "switch.py", TREE / "src" / "mutant_switch.py")
    with (TREE / PACKAGE / "runtime" / "native" / "blocks.c").open("a", encoding="utf-8") as file:
        file.write((HERE / "switch.c").read_text(encoding="utf-8"))
    if (ROOT.parent / "shared").is_dir():
        (WORK / "shared").symlink_to(ROOT.parent / "shared")
    (TREE / ".venv").symlink_to(Path(sys.prefix))
    subprocess.run(["git", "init", "--quiet"], cwd=TREE, check=True)
    subprocess.run([sys.executable, f"{PACKAGE}/runtime/native/build.py"], cwd=TREE, env=environment(), check=True)


def environment(**more: str) -> dict[str, str]:
    paths = os.pathsep.join([str(TREE / "src"), str(TREE / "tests")])
    return {**os.environ, "PYTHONPATH": paths, **more}


def reaching() -> dict[int, dict[str, float]]:
    """For each mutation the tests that reach it and pass without it, with their seconds."""
    report, reached = WORK / "tests.xml", WORK / "reached.tsv"
    if not report.exists():
        command = [*PYTEST, "--numprocesses", "2", "--dist", "worksteal"]
        subprocess.run([*command, f"--junitxml={report}", "-p", "mutants.names"], cwd=TREE,
                       env=environment(HEADWISE_MUTANTS_REACHED=str(reached)), check=False)  # fmt: skip
    seconds: dict[str, float] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = next((one.get("value") or "" for one in case.iter("property") if one.get("name") == "nodeid"), "")
        if case.find("failure") is None and case.find("error") is None and case.find("skipped") is None:
            seconds[name] = float(case.get("time") or 0)
    found: dict[int, dict[str, float]] = defaultdict(dict)
    for line in reached.read_text(encoding="utf-8").splitlines():
        number, _, test = line.partition("\t")
        if test in seconds:
            found[int(number)][test] = seconds[test]
    return found


def planned(tests: dict[str, float], most: float) -> dict[str, float]:
    """The fastest tests that together take at most this many seconds, those of a module together."""
    taken: dict[str, float] = {}
    for name, seconds in sorted(tests.items(), key=lambda one: (one[1], one[0])):
        if taken and sum(taken.values()) + seconds > most:
            break
        taken[name] = seconds
    order: dict[str, int] = {}
    for position, name in enumerate(taken):
        order.setdefault(name.partition("::")[0], position)
    return dict(sorted(taken.items(), key=lambda one: order[one[0].partition("::")[0]]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--number", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=25, help="of tests for each mutation")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    sites = chosen(all_sites(ROOT, c_sources()), options.number, options.seed)
    if not (options.again and TREE.exists()):
        build_tree(sites)
    reached = reaching()
    plan = {number: planned(reached[number], options.seconds) for number in range(len(sites)) if reached[number]}
    (WORK / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    command = [*PYTEST, "-p", "mutants.judge"]
    more = {"HEADWISE_MUTANTS_PLAN": str(WORK / "plan.json"), "HEADWISE_MUTANTS_JOBS": str(options.jobs)}
    subprocess.run(command, cwd=TREE, env=environment(**more), check=False)
    results = {}
    for line in (WORK / "results.jsonl").read_text(encoding="utf-8").splitlines():
        result = json.loads(line)
        results[int(result["number"])] = result
    rows, counts = [], Counter()
    for number, site in enumerate(sites):
        failed = results.get(number, {}).get("failed", "")
        outcome = "caught" if failed else "survived" if number in results else "not reached"
        counts[outcome] += 1
        shown = (" ".join(text.split())[:90] for text in (site.original, site.changed or "(removed)"))
        rows.append(
            "\t".join([outcome, f"{site.file}:{site.line}", site.kind, *shown, str(len(reached[number])), failed])
        )
    summary = f"# seed {options.seed}, {options.seconds:.0f} s: {len(sites)} mutations, " + ", ".join(
        f"{counts[name]} {name}" for name in ("caught", "survived", "not reached")
    )
    head = "outcome\tline\tkind\toriginal\tchanged\ttests that reach it\tfirst test that failed"
    (HERE / "results.tsv").write_text("\n".join([summary, head, *sorted(rows)]) + "\n", encoding="utf-8")
    print(summary)


if __name__ == "__main__":
    main()
