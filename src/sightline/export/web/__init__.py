"""`sightline export --to web`: a translator as one HTML file, which translates in any browser, without a network.

`tokens` and `memory` put the tokenizer and the packed network into words for the page, `wasm` compiles the library for
it, and `page` makes one file of all that and the scripts in `assets/`.
"""
