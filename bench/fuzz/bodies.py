"""Request bodies, and what the engine has to get of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any

from bench.fuzz.streams import text

_BLANKS = ("", "", "", " ", "\n", "\t ", "\r\n")
_RECORD = "return_spec_tokens_details"
_KEYS = ("a", "messages", 'b"}', "]", "ключ", "stream", "usage", "model", "metadata")


@dataclass(frozen=True, slots=True)
class Body:
    """A body in its two forms."""

    sent: bytes
    forwarded: bytes
    strips: bool = False
    """Whether the proxy asks for usage that the client did not want."""
    record: bool = False
    """Whether it asks for a record of speculation that the client did not want."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a body has to say."""

    name: str | None
    """Of the model; None where the body names none."""
    route: str
    """The name under which the engine knows it."""
    stream: bool
    asks_usage: bool
    """Whether the engine's adapter asks for usage at this endpoint."""
    asks_record: bool = False
    """Whether it asks for a record of speculation."""


def json_body(rng: Random, wanted: Wanted) -> Body:
    """A JSON object with the members that are wanted among others."""
    ascii_only = rng.random() < 0.5

    def dump(value: Any) -> str:
        return json.dumps(value, ensure_ascii=ascii_only)

    members: list[tuple[str, str, str]] = [
        (f"x{i}", value, value)
        for i in range(rng.randrange(5))
        for value in (dump(_value(rng, 3)),)
    ]
    if wanted.name is not None:
        named = dump(wanted.name)
        known = json.dumps(wanted.route) if wanted.name != wanted.route else named
        members.append(("model", named, known))
    if wanted.stream:
        members.append(("stream", "true", "true"))
    elif rng.random() < 0.3:
        members.append(("stream", rng.choice(("false", "null", "1")), ""))
        members[-1] = (*members[-1][:2], members[-1][1])
    if rng.random() < 0.1:
        prompt = dump(text(rng) * rng.choice((1, 40, 300)))
        members.append(("prompt", prompt, prompt))
    options, asked, strips = _options(rng, wanted)
    if options is not None:
        members.append(("stream_options", options, asked))
    record = wanted.asks_record
    given = rng.choice(("false", "null", "true")) if record and rng.random() < 0.3 else None
    if given is not None:
        members.append((_RECORD, given, "true"))
        record = given != "true"
    rng.shuffle(members)
    blanks = [rng.choice(_BLANKS) for _ in range(4 * len(members) + 3)]
    sent = _object(members, blanks, 1)
    forwarded = _object(members, blanks, 2)
    if record and given is None:
        at = forwarded.index("{") + 1
        forwarded = f'{forwarded[:at]}"{_RECORD}":true,{forwarded[at:]}'
    if strips and options is None:
        at = forwarded.index("{") + 1
        forwarded = f'{forwarded[:at]}"stream_options":{asked},{forwarded[at:]}'
    return Body(
        sent.encode("utf-8", "surrogatepass"),
        forwarded.encode("utf-8", "surrogatepass"),
        strips,
        record,
    )


def form_body(rng: Random, wanted: Wanted) -> tuple[Body, str]:
    """A form with a file in it, and its content type."""
    boundary = rng.choice(("x", "----WebKitFormBoundary7MA4YWxk", "a'b(c)", "0" * 70))
    quote = '"' if rng.random() < 0.5 or not boundary.isalnum() else ""
    sound = rng.randbytes(rng.choice((0, 3, 200, 70_000)))
    fields: list[tuple[str, str, bytes, bytes]] = [
        ("file", '; filename="a.wav"\r\nContent-Type: audio/wav', sound, sound),
        ("language", "", b"en", b"en"),
        ("not_model", "", b"model", b"model"),
    ]
    if wanted.name is not None:
        fields.append(("model", "", wanted.name.encode(), wanted.route.encode()))
    rng.shuffle(fields)
    form = _form(fields, boundary, 2), _form(fields, boundary, 3)
    return Body(*form), f"multipart/form-data; boundary={quote}{boundary}{quote}"


def _form(fields: list[tuple[str, str, bytes, bytes]], boundary: str, which: int) -> bytes:
    parts = []
    for field in fields:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{field[0]}"{field[1]}'
        value = field[2] if which == 2 else field[3]
        parts.append(head.encode() + b"\r\n\r\n" + value + b"\r\n")
    return b"".join(parts) + f"--{boundary}--\r\n".encode()


def _options(rng: Random, wanted: Wanted) -> tuple[str | None, str, bool]:
    """`stream_options` as the client writes it, as the engine gets it, and whether we strip."""
    asked = '{"include_usage":true}'
    kind = rng.randrange(7)
    strips = wanted.stream and wanted.asks_usage
    if kind <= 1:
        return None, asked, strips
    text_of = {
        2: ("null", asked),
        3: ("{ }", '{"include_usage":true }'),
        4: ('{"include_usage" : false}', '{"include_usage" : true}'),
        5: ('{"x":[1]}', '{"include_usage":true,"x":[1]}'),
    }.get(kind)
    if text_of is None:
        given = rng.choice(
            ('{"include_usage":true}', '{"continuous_usage_stats":true}', '"text"', "7")
        )
        return given, given, False
    return (*text_of, True) if strips else (text_of[0], text_of[0], False)


def _object(members: list[tuple[str, str, str]], blanks: list[str], which: int) -> str:
    parts = []
    for index, member in enumerate(members):
        a, b, c, d = blanks[4 * index : 4 * index + 4]
        parts.append(f"{a}{json.dumps(member[0])}{b}:{c}{member[which]}{d}")
    before, empty, after = blanks[-3:]
    return f"{before}{{{','.join(parts) or empty}}}{after}"


def _value(rng: Random, depth: int) -> Any:
    kind = rng.randrange(7 if depth else 5)
    if kind == 5:
        return [_value(rng, depth - 1) for _ in range(rng.randrange(3))]
    if kind == 6:
        return {rng.choice(_KEYS): _value(rng, depth - 1) for _ in range(rng.randrange(3))}
    return rng.choice((None, True, 1.5e300, -7, 2**63, text(rng), 'te"x\\t', "{[", "字", ""))
