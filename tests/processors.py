"""`make check-processors`: the numerical tests as older processors would run them.

Environment variables keep torch (ATen, oneDNN, MKL) and the compiled library from instructions that this processor has
and an older one lacks. Levels that this processor cannot run are skipped; `make test` covers its own.
"""

import os
import subprocess
import sys

import torch

LEVELS = {  # ATEN_CPU_CAPABILITY: ONEDNN_MAX_CPU_ISA, MKL_ENABLE_INSTRUCTIONS and HEADWISE_NATIVE
    "default": ("SSE41", "SSE4_2", "scalar"),
    "avx2": ("AVX2", "AVX2", "avx2"),
    "avx512": ("AVX512_CORE", "AVX512", "avx512"),
}
NUMERICAL = ["tests/parity", "tests/unit/core", "tests/unit/training", "tests/unit/search"]


def main() -> None:
    """Run the tests at every level and exit with 1 if any of them fails."""
    own = torch.backends.cpu.get_cpu_capability().lower()
    levels = list(LEVELS)[: list(LEVELS).index(own) + 1] if own in LEVELS else []
    if not levels:
        print(f"check-processors: nothing to imitate: torch calls this processor {own}, none of {', '.join(LEVELS)}")
    failed = []
    for level in levels:
        onednn, mkl, native = LEVELS[level]
        print(f"--- ATEN_CPU_CAPABILITY={level} ONEDNN_MAX_CPU_ISA={onednn} MKL_ENABLE_INSTRUCTIONS={mkl}", flush=True)
        environment = {
            **os.environ,
            "ATEN_CPU_CAPABILITY": level,
            "ONEDNN_MAX_CPU_ISA": onednn,
            "MKL_ENABLE_INSTRUCTIONS": mkl,
            "HEADWISE_NATIVE": native,
        }
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-m",
            "not slow and not distributed",
            "--numprocesses",
            "auto",
            *NUMERICAL,
        ]
        if subprocess.run([*command, *sys.argv[1:]], env=environment, check=False).returncode:
            failed.append(level)
    if failed:
        sys.exit(f"check-processors: failed at level {', '.join(failed)}")


if __name__ == "__main__":
    main()
