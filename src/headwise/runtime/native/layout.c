/* The sizes of the structures that library.py mirrors, compared when the library is loaded. */

#include "search.h"

#include "attention.h"
#include "reading.h"

#include <string.h>

/* The size of a structure in bytes; 0 for an unknown name. */
EXPORT int headwise_struct_size(const char *name);

int headwise_struct_size(const char *name) {
#define STRUCT(NAME) \
    if (!strcmp(name, #NAME)) return (int)sizeof(NAME);
    STRUCT(Norm) STRUCT(Linear) STRUCT(Attention) STRUCT(FeedForward) STRUCT(Layer) STRUCT(Embeddings) STRUCT(Rotary)
    STRUCT(Relative) STRUCT(Transformer) STRUCT(SublayerSteps) STRUCT(AttentionSteps) STRUCT(Walk) STRUCT(Recording)
    STRUCT(Members) STRUCT(Ids) STRUCT(Options) STRUCT(Limits) STRUCT(Found) STRUCT(Ranked) STRUCT(Packing) STRUCT(Inputs)
    return 0;
}
