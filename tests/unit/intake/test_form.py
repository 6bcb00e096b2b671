"""Finding a field of a form in its bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.intake.form import MOST_PARTS, field_span, field_text

TYPE = "multipart/form-data; boundary=XyZ"
FILE = (
    b'Content-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav',
    b"RIFF\x00\r\n\r\n--Xy\r\n\xff",
)


def part(name: str, value: bytes) -> tuple[bytes, bytes]:
    """A plain field."""
    return b'Content-Disposition: form-data; name="' + name.encode() + b'"', value


def form(*parts: tuple[bytes, bytes], dash: bytes = b"--XyZ", preamble: bytes = b"") -> bytes:
    """A form of these parts."""
    written = b"".join(
        dash + b"\r\n" + head + b"\r\n\r\n" + value + b"\r\n" for head, value in parts
    )
    return preamble + written + dash + b"--\r\n"


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (form(part("model", b"whisper")), TYPE, "whisper"),
        (form(FILE, part("model", b"whisper")), TYPE, "whisper"),
        (form(part("model", b"whisper"), FILE), TYPE, "whisper"),
        (form(part("model", b"a"), part("model", b"b")), TYPE, "b"),
        (form(part("model", "模型".encode())), TYPE, "模型"),
        (form(part("model", b"")), TYPE, ""),
        (form(FILE), TYPE, None),
        (form(part("models", b"x"), part("xmodel", b"y")), TYPE, None),
        (form((b"content-disposition:form-data;name=model", b"m")), TYPE, "m"),
        (
            form((b"Content-Type: text/plain\r\nContent-Disposition: form-data; name=model", b"m")),
            TYPE,
            "m",
        ),
        (form((b'Content-Disposition: form-data; filename="model"', b"m")), TYPE, None),
        (form((b'X-Other: form-data; name="model"', b"m")), TYPE, None),
        (form(part("model", b"m"), preamble=b"hello\r\n"), TYPE, "m"),
        (form(part("model", b"m")), 'multipart/form-data; boundary="XyZ"', "m"),
        (form(part("model", b"m")), "multipart/form-data; charset=utf-8; BOUNDARY=XyZ", "m"),
        (form(part("model", b"m")), "multipart/form-data; boundary=Other", None),
        (form(part("model", b"m")), "multipart/form-data", None),
        (form(part("model", b"\xff")), TYPE, None),
        (form(part("model", b"m" * 5000)), TYPE, None),
        (b"", TYPE, None),
        (b"--XyZ", TYPE, None),
        (b"--XyZ\r\n" + part("model", b"")[0] + b"\r\n\r\nwhisper", TYPE, "whisper"),
    ],
)
def test_the_value_of_a_field(body: bytes, content_type: str, expected: str | None) -> None:
    """Wherever it stands, and None where there is no such text."""
    assert field_text(body, content_type, "model") == expected


def test_the_work_is_bounded() -> None:
    """A form of many parts is read as far as forms go."""
    many = [part(f"f{index}", b"x") for index in range(MOST_PARTS)]
    assert field_text(form(*many[1:], part("model", b"m")), TYPE, "model") == "m"
    assert field_text(form(*many, part("model", b"m")), TYPE, "model") is None


@given(st.binary(max_size=60), st.binary(max_size=60), st.text('ab=;"\\ ', max_size=12))
def test_no_bytes_are_too_odd(before: bytes, value: bytes, boundary: str) -> None:
    """Whatever is found lies inside the body."""
    body = before + form(part("model", value))
    for content_type in (TYPE, f"multipart/form-data; boundary={boundary}"):
        span = field_span(body, content_type, "model")
        assert span is None or 0 <= span[0] <= span[1] <= len(body)


@given(st.binary(max_size=40).filter(lambda value: b"\r\n--XyZ" not in b"\r\n" + value))
def test_a_value_is_found_whole(value: bytes) -> None:
    """Any bytes that do not end the part."""
    body = form(FILE, part("model", value), FILE)
    span = field_span(body, TYPE, "model")
    assert span is not None
    assert body[span[0] : span[1]] == value
