"""The files that put a server on a machine of its own: valid, and what they start is a command line of ours."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwise.cli import parse

SERVING = Path(__file__).resolve().parents[3] / "docs" / "serving"


def test_the_unit_is_valid_and_starts_a_server(tmp_path: Path) -> None:
    unit = (SERVING / "headwise.service").read_text(encoding="utf-8")
    (started,) = re.findall(r"^ExecStart=(\S+) (.*)$", unit, re.MULTILINE)
    assert parse(shlex.split(started[1])).languages == [("en", "de")]
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / "headwise.service"
    copy.write_text(unit.replace(started[0], sys.executable), encoding="utf-8")  # the one that there is here
    ran = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    if "Failed to initialize manager" in ran.stderr:
        pytest.skip("systemd-analyze may not look here")
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")


def test_the_image_is_made_by_the_rules_and_starts_a_server() -> None:
    text = (SERVING / "Dockerfile").read_text(encoding="utf-8")
    entry, command = (
        json.loads(re.findall(rf"^{word} (\[.*\])$", text, re.MULTILINE)[0]) for word in ("ENTRYPOINT", "CMD")
    )
    options = parse([*entry[1:], *command])
    assert (options.models, options.host, options.languages) == (["/model"], "0.0.0.0", [("en", "de")])
    if not (hadolint := shutil.which("hadolint", path=Path(sys.executable).parent)):
        pytest.skip("hadolint is not installed")
    ran = subprocess.run([hadolint, str(SERVING / "Dockerfile")], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")
