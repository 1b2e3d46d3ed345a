"""`headwise export --to web`: a translator as one HTML file that runs in any browser, offline.

`tokens` and `memory` serialise the tokenizer and the packed network, `wasm` compiles the library for browsers, and
`page` combines all with the scripts in `assets/`.
"""
