"""`headwise export --to web`: models as one HTML file that runs in any browser, offline.

`memory` serialises a packed network, `wasm` compiles the library for browsers, and `page` combines them with the
tokenizer and the scripts in `assets/`.
"""
