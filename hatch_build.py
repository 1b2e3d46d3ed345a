"""Compiles the C library of `headwise.runtime.native` when the package is installed or a wheel of it is made.

Without a C compiler on the path the build asks for `ziglang`, which brings one. Where the library cannot be built at
all the package is complete without it, only slower.

    python hatch_build.py                          a wheel for each of TARGETS and the sources, into dist/
    python hatch_build.py win_amd64 ...            for some of them
"""

import os
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
NATIVE = runpy.run_path(str(ROOT / "src/headwise/runtime/native/build.py"))
TARGET = "HEADWISE_TARGET"  # in the environment: the tag of the machines that a wheel is for, if not for this one
TARGETS = {  # and what ziglang calls them
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    "macosx_11_0_x86_64": "x86_64-macos.11.0",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
    "win_amd64": "x86_64-windows-gnu",
}


class NativeLibrary(BuildHookInterface):
    """The hook."""

    def dependencies(self) -> list[str]:
        """What to install before building."""
        alone = NATIVE["builds"]() and NATIVE["compiler"]() is None
        return ["ziglang"] if alone or TARGET in os.environ else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; a wheel with the library is for one kind of machine only."""
        target = os.environ.get(TARGET, "")
        failure = self._compile_for(target, build_data) if target else NATIVE["build_library"]()
        if failure and target:
            raise SystemExit(f"{target}: {failure}")
        if failure:
            self.app.display_warning(f"headwise: the compiled library was left out: {failure}")
            return
        missing = [] if target else NATIVE["left_out"]()
        if missing:
            self.app.display_warning(f"headwise: builds left out, unknown to this compiler: {', '.join(missing)}")
        build_data["pure_python"] = False
        if not target:
            build_data["artifacts"].append("/src/headwise/runtime/native/_library_*.so")
        build_data["tag"] = f"py3-none-{target or sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def _compile_for(self, target: str, build_data: dict[str, Any]) -> str:
        """Elsewhere than in the sources, which keep the libraries of this machine. Why not, or nothing."""
        self._folder = TemporaryDirectory()
        folder, machine = Path(self._folder.name), TARGETS[target].split("-")[0]
        failure = NATIVE["build_library"](folder, machine, [*NATIVE["ZIG"], "-s", "-target", TARGETS[target]])
        missing = [] if failure else NATIVE["left_out"](folder, machine)
        if missing:
            return f"ziglang cannot compile {', '.join(missing)}, and a wheel must have every build"
        for path in folder.glob("_library_*.so"):
            build_data["force_include"][str(path)] = f"headwise/runtime/native/{path.name}"
        return failure


def build_all(targets: list[str]) -> None:
    """One wheel after the other, and the sources; stops at what fails."""
    call = [sys.executable, "-m", "hatchling", "build", "--target"]
    for target in targets:
        subprocess.run([*call, "wheel"], cwd=ROOT, env={**os.environ, TARGET: target}, check=True)
    subprocess.run([*call, "sdist"], cwd=ROOT, check=True)


if __name__ == "__main__":
    build_all(sys.argv[1:] or list(TARGETS))
