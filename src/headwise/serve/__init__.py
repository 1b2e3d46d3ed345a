"""Translation over HTTP: LibreTranslate's API, an API of our own, and a page.

A request is split into sentences (`translation`), the sentences of all requests are batched (`batching`) for each model
(`models`), and the results are joined again. See `headwise.models.translation.translator` for the translation of a
batch.
"""
