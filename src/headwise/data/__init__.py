"""The data pipeline: `corpus` -> `tokenizer` -> `prepared` -> `batch_planning` -> `batching` -> `batch`.

`corpus` reads pairs of strings, `tokenizer` splits them into tokens, and `prepared` caches the tokenised corpus on
disk. `batch_planning` groups pairs, `batching` streams the batches, and `batch` holds the tensors. The other modules
read the data of other tasks. Nothing here depends on a model.
"""
