"""The explorer: a page to type sentences, force prefixes, mask heads, and compare two models.

`requests.py` parses requests, `answers.py` runs the models, and `server.py` speaks HTTP. The page is that of
`view.page`, with `live.js`.
"""
