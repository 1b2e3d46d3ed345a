"""The live page: type a sentence and watch; force a beginning, silence heads, set two models side by side.

`requests.py` reads what the page asks, `answers.py` asks the models, `server.py` speaks HTTP. The page itself is that
of `inspect.page`, with `live.js` awake.
"""
