"""A recording engine, a fuzzing client and a whole proxy between them, in one event loop.

`model` is what a case is, `generate` draws one from a seed, `streams` and `bodies` draw what is in
it; `engine` and `client` play it over sockets, `reading` frames what they get; `oracle` says what
was wrong; `world` runs cases side by side and looks for what is left behind; `shrink` makes a
failing case small.
"""
