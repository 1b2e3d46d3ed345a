"""The most 8-bit operations a second that one core of this processor can do: a loop of integer products alone.

    python benchmarks/peak.py

The instructions are those of the library's build in use: `vpdpbusd` of 512 or 256 bits; with AVX2 `vpmaddubsw`, and one
`vpaddw` for each, without which sums would overflow. A multiply-add counts as two operations.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

import machine

from headwise.runtime.native.build import builds, compiler
from headwise.runtime.native.library import instructions

REPEATS = machine.pick(10_000_000, 10_000)
PROGRAM = """
#include <immintrin.h>
#include <stdio.h>
#include <time.h>

#if BITS == 512
typedef __m512i reg;
#define ONE _mm512_set1_epi8(1)
#else
typedef __m256i reg;
#define ONE _mm256_set1_epi8(1)
#endif

#define OP(a) __asm__ volatile(INSTRUCTION : "+x"(a) : "x"(w), "x"(x) : "xmm15");
#define OPS(a, b, c, d, e, f) OP(a) OP(b) OP(c) OP(d) OP(e) OP(f)

int main(void) {
    double best = 1e9;
    for (int repeat = 0; repeat < 5; repeat++) {
        register reg a = ONE, b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a, k = a, l = a, w = a, x = a;
        const clock_t started = clock();
        for (long n = 0; n < REPEATS; n++) { OPS(a, b, c, d, e, f) OPS(g, h, i, j, k, l) }
        const double seconds = (double)(clock() - started) / CLOCKS_PER_SEC;
        if (seconds < best) best = seconds;
    }
    printf("%.1f", REPEATS * 12.0 * 2 * BITS / 8 / best / 1e9);
    return 0;
}
"""
DOT = '"vpdpbusd %1, %2, %0"'
INSTRUCTIONS = {  # of each build: its bits and its instruction
    "avx512": (512, DOT),
    "amx": (512, DOT),
    "avxvnni": (256, '"%{vex%} vpdpbusd %1, %2, %0"'),
    "avx2": (256, '"vpmaddubsw %1, %2, %%ymm15\\n\\tvpaddw %%ymm15, %0, %0"'),
}


def int8_peak() -> float:
    """Operations a second of one core, in billions; 0 where it cannot be measured."""
    build, command = instructions(), compiler()
    if build not in INSTRUCTIONS or command is None:
        return 0.0
    bits, instruction = INSTRUCTIONS[build]
    with tempfile.TemporaryDirectory() as name:
        source, program = Path(name, "peak.c"), Path(name, "peak")
        source.write_text(PROGRAM)
        given = [f"-DBITS={bits}", f"-DINSTRUCTION={instruction}", f"-DREPEATS={REPEATS}"]
        subprocess.run([*command, "-O2", *builds()[build], *given, str(source), "-o", str(program)], check=True)
        return float(subprocess.run([program], check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    machine.add_quick_option(parser)
    parser.parse_args()
    print(f"{instructions()}: {int8_peak():,.0f} billion operations a second on one core")
