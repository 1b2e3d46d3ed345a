"""Publish the report of a study, complete or not: `python benchmarks/study.py runs/study`.

The report becomes `results/study-full_<cores>-core-cpu_<date>` (.json, .md, and a picture of each claim that was
measured) in place of the one before. Continue it with `headwise study --measured FILE.json`.
"""

import argparse
import json
import shutil
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def publish(out: Path) -> Path:
    """Copy the report of the folder; returns the path of the JSON file."""
    about = json.loads((out / "study.json").read_text(encoding="utf-8"))["about"]
    if about["scale"] != "full":
        raise SystemExit(f"{out}: a quick study has no verdicts to publish")
    for old in RESULTS.glob("study-full_*"):
        old.unlink()
    threads = about["machine"].rpartition(", ")[2].split()[0]
    name = f"study-full_{threads}-core-cpu_{about['date']}"
    text = (out / "study.md").read_text(encoding="utf-8").replace("](figures/", f"]({name}_")
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
    for picture in (out / "figures").glob("*.png"):
        if f"]({name}_{picture.name})" in text:
            shutil.copy(picture, RESULTS / f"{name}_{picture.name}")
    return Path(shutil.copy(out / "study.json", RESULTS / f"{name}.json"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of the study")
    print(publish(parser.parse_args().out))
