"""Translators behind HTTP: for programs that speak LibreTranslate's API, for our own, and a page for people.

A request becomes sentences (`documents`), sentences of all requests become batches (`batching`) for the models that are
here (`served`), and what comes back is put together again (`answering`). Not here: translating
(`sightline.models.translation`).
"""
