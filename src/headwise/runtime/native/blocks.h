/* Large blocks of memory that are kept for the next batch. The system would clear their pages again for each batch, which takes
   5 to 8 % of the time of a search. */

#ifndef HEADWISE_BLOCKS_H
#define HEADWISE_BLOCKS_H

#include "common.h"

#include <stdint.h>

/* At least `size` bytes of undefined content, aligned to 64 bytes; NULL if out of memory. */
void *take_block(int64_t size);

/* The bytes that a block has. */
int64_t block_size(const void *block);

/* Gives a block back; NULL is allowed. */
void give_block(void *block);

/* Frees the blocks that are kept. */
EXPORT void headwise_free_blocks(void);

#endif
