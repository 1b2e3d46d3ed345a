/* The checksum of a packed file, at memory speed. It detects damage, but does not protect against forgery.

   Each of eight lanes takes every eighth word. Each word changes its lane by a bijection, so a change of a single word always
   changes the sum; other changes are missed with probability 2^-64. */

#include "products.h"

#include <string.h>

enum { SUMS = 8, WORD = sizeof(uint64_t), BLOCK = SUMS * WORD };

static inline uint64_t mixed(uint64_t sum, uint64_t word) {
    sum ^= word;
    return (sum << 29 | sum >> 35) * 0x9E3779B97F4A7C15u; /* odd: 2^64 over the golden ratio */
}

static inline void add_block(uint64_t *sums, const uint8_t *bytes) {
    uint64_t words[SUMS];
    memcpy(words, bytes, BLOCK);
    for (int i = 0; i < SUMS; i++) sums[i] = mixed(sums[i], words[i]);
}

uint64_t headwise_checksum(const uint8_t *bytes, int64_t n) {
    uint64_t sums[SUMS], sum = (uint64_t)n;
    uint8_t rest[BLOCK] = {0};
    for (int i = 0; i < SUMS; i++) sums[i] = (uint64_t)i;
    int64_t whole = n - n % BLOCK;
    for (int64_t i = 0; i < whole; i += BLOCK) add_block(sums, bytes + i);
    if (n > whole) memcpy(rest, bytes + whole, (size_t)(n - whole));
    add_block(sums, rest);
    for (int i = 0; i < SUMS; i++) sum = mixed(sum, sums[i]);
    return sum ^ sum >> 32;
}
