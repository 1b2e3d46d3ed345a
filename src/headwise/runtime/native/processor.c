/* Detects the instructions of this processor. Part of the build that runs on every processor. /proc/cpuinfo describes the
   machine, not an emulator on it, and is missing in many chroots. */

#include "activations.h"

#include <stdint.h>
#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { FMA = 1 << 12, OSXSAVE = 1 << 27, AVX = 1 << 28 };                                           /* leaf 1, ecx */
enum { AVX2 = 1 << 5, AVX512 = 1 << 16 | 1 << 17 | 1 << 30, AVX512VL = 1u << 31, VNNI = 1 << 11 }; /* leaf 7, ebx; ecx */
enum { AVXVNNI = 1 << 4, AVX512BF16 = 1 << 5 };                                                     /* leaf 7.1, eax */
enum { AMX = 1 << 24 | 1 << 25 };                                                                   /* leaf 7, edx */
enum { YMM = 0x06, ZMM = 0xe6, TILES = 0x60000 };                                                   /* of XCR0 */

#ifndef saved_registers
/* The registers that the operating system saves. */
static uint32_t saved_registers(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}
#endif

/* Whether the system saves tiles and allows this process to use them (Linux requires a request). */
static int grants_tiles(void) {
#ifdef SYS_arch_prctl
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    return (saved_registers() & TILES) == TILES && !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA);
#else
    return 0;
#endif
}

static int runs(const char *build) {
    const unsigned needed = FMA | OSXSAVE | AVX, wide = (unsigned)AVX512 | AVX512VL;
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & needed) != needed) return 0;
    const uint32_t saved = saved_registers();
    if ((saved & YMM) != YMM || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & AVX2)) return 0;
    if (!strcmp(build, "avx2")) return 1;
    const int avx512 = (saved & ZMM) == ZMM && (b & wide) == wide && (c & VNNI);
    if (!strcmp(build, "avx512")) return avx512;
    if (!strcmp(build, "amx")) return avx512 && (d & AMX) == AMX && grants_tiles();
    return !strcmp(build, "avxvnni") && a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVXVNNI);
}

static int multiplies_bfloat16(void) {
    unsigned a, b, c, d;
    if (!runs("avx512") || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || a < 1) return 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX512BF16);
}
#elif defined(__aarch64__)
#ifdef __linux__
#include <sys/auxv.h>
static int multiplies(void) { return getauxval(AT_HWCAP) >> 20 & 1; }           /* HWCAP_ASIMDDP */
static int multiplies_matrices(void) { return getauxval(AT_HWCAP2) >> 13 & 1; } /* HWCAP2_I8MM */
#else
#include <sys/sysctl.h>
static int multiplies(void) { return 1; } /* every Mac's */
static int multiplies_matrices(void) {    /* since the M2 */
    int has = 0;
    size_t size = sizeof has;
    return !sysctlbyname("hw.optional.arm.FEAT_I8MM", &has, &size, NULL, 0) && has;
}
#endif

static int runs(const char *build) {
    if (!strcmp(build, "i8mm")) return multiplies() && multiplies_matrices();
    return !strcmp(build, "neon") || (!strcmp(build, "dotprod") && multiplies());
}
static int multiplies_bfloat16(void) { return 0; } /* some do, but training was not measured there */
#endif

/* Whether this processor and its operating system support the instructions of a build (BUILDS in build.py). */
EXPORT int headwise_runs_here(const char *build) { return !strcmp(build, "scalar") || runs(build); }

/* Whether it has bfloat16 instructions that make training steps faster. */
EXPORT int headwise_multiplies_bfloat16(void) { return multiplies_bfloat16(); }
