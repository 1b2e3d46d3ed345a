"""From files to batches, in the order the data flows: corpus, tokenizer, prepared, batching, batch.

`corpus` reads pairs of strings, `tokenizer` cuts them into pieces, `prepared` keeps a tokenised corpus on
disk, `batching` decides which pairs go together and `batch` holds the tensors. Beside them `labelled` has texts with
labels and `series` the windows of a time series. Nothing here knows a model.
"""
