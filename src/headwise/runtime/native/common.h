/* What every source uses. */

#ifndef HEADWISE_COMMON_H
#define HEADWISE_COMMON_H

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

/* What a function that can fail returns; 0 if it does not. */
enum { OUT_OF_MEMORY = -1, CANCELLED = -2 };

/* Return from a function what a call in it returns, if that fails. */
#define TRY(CALL) \
    do { \
        const int failure = (CALL); \
        if (failure) return failure; \
    } while (0)

/* The next multiple of a register's eight numbers. */
static inline int round_up(int n) { return (n + 7) / 8 * 8; }

#endif
