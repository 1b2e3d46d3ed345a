/* See simd.h: a panel as two f8, without 512-bit registers. */

typedef struct f16 {
    f8 low, high;
} f16;

INLINE f16 load16(const float *x) { return (f16){load8(x), load8(x + 8)}; }
INLINE f16 read16(const void *x, int64_t i, int half) {
    if (!half) return load16((const float *)x + i);
    u8 bits[2];
    f16 y;
    widen_bfloat8(x, i, bits);
    widen_bfloat8(x, i + 8, bits + 1);
    memcpy(&y, bits, 64);
    return y;
}
INLINE void store16(float *to, f16 x) { store8(to, x.low), store8(to + 8, x.high); }
INLINE f16 set16(float x) { return (f16){set8(x), set8(x)}; }
INLINE f16 add16(f16 a, f16 b) { return (f16){add8(a.low, b.low), add8(a.high, b.high)}; }
INLINE f16 sub16(f16 a, f16 b) { return (f16){sub8(a.low, b.low), sub8(a.high, b.high)}; }
INLINE f16 mul16(f16 a, f16 b) { return (f16){mul8(a.low, b.low), mul8(a.high, b.high)}; }
INLINE f16 max16(f16 a, f16 b) { return (f16){max8(a.low, b.low), max8(a.high, b.high)}; }
INLINE f16 fma16(f16 a, f16 b, f16 c) { return (f16){fma8(a.low, b.low, c.low), fma8(a.high, b.high, c.high)}; }
INLINE f8 add_halves16(f16 x) { return add8(x.low, x.high); }
INLINE f8 max_halves16(f16 x) { return max8(x.low, x.high); }
