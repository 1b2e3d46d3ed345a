"""Compiles the C library of `sightline.native` when the package is installed or a wheel of it is made.

Without a C compiler on the path the build asks for `ziglang`, which brings one. Where the library cannot be built at
all the package is complete without it, only slower.
"""

import runpy
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = runpy.run_path(str(Path(__file__).parent / "src/sightline/native/build.py"))


class NativeLibrary(BuildHookInterface):
    """The hook."""

    def dependencies(self) -> list[str]:
        """What to install before building."""
        return ["ziglang"] if NATIVE["builds"]() and NATIVE["compiler"]() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; a wheel with the library is for this kind of machine only."""
        failure = NATIVE["build"]()
        if failure:
            self.app.display_warning(f"sightline: the compiled library was left out: {failure}")
            return
        build_data["artifacts"].append("/src/sightline/native/_library_*.so")
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
