"""`headwise export --to web`: a translator as one HTML file that runs in any browser, offline.

`memory` serialises the packed network, `wasm` compiles the library for browsers, and `page` combines them with the
tokenizer and the scripts in `assets/`.
"""
