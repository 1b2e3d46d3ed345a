"""Relatives of the Transformer that need more than a table of names: XLNet's two streams.

A network here stands by itself and may use components of `network`; nothing is an option of the paper's own network.
The families that are configurations of that network are tables in `families`.
"""
