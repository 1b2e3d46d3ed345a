/* What this processor can do. Compiled without the instructions that the other files are made of: it has to run anywhere.
   /proc/cpuinfo would speak of the machine, not of an emulator on it, and is missing in many a chroot. */

#include <cpuid.h>
#include <stdint.h>

enum { FMA = 1 << 12, OSXSAVE = 1 << 27, AVX = 1 << 28, AVX2 = 1 << 5, REGISTERS = 6 };

/* Which registers the system saves: xmm and ymm are bits 1 and 2 of XCR0. */
static uint32_t saved_registers(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* Whether there are AVX2 and FMA, and a system that keeps their registers. */
__attribute__((visibility("default"))) int sightline_runs_here(void) {
    const unsigned needed = FMA | OSXSAVE | AVX;
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & needed) != needed) return 0;
    if ((saved_registers() & REGISTERS) != REGISTERS) return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & AVX2);
}
