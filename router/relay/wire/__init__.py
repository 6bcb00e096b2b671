"""The upstream that serves: HTTP/1.1 over asyncio's own transports, framed by httptools' parser.

`upstream` sends, `pool` keeps connections, `dial` makes them, `connection` carries one exchange
after the other, `framing` knows where an answer ends, `response` hands it over, `head` writes what
is sent.
"""
