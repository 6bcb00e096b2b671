"""The official clients, made to read an answer that a test has at hand."""

from __future__ import annotations

import anthropic
import httpx2
import openai


def openai_reading(
    status: int, body: bytes, content_type: str = "application/json"
) -> openai.OpenAI:
    """OpenAI's client, to which every request is answered alike."""
    http = openai.DefaultHttpxClient(transport=_answering(status, body, content_type))
    return openai.OpenAI(api_key="k", base_url="http://proxy/v1", max_retries=0, http_client=http)


def anthropic_reading(
    status: int, body: bytes, content_type: str = "application/json"
) -> anthropic.Anthropic:
    """Anthropic's client, to which every request is answered alike."""
    http = anthropic.DefaultHttpxClient(transport=_answering(status, body, content_type))
    return anthropic.Anthropic(
        api_key="k", base_url="http://proxy", max_retries=0, http_client=http
    )


def _answering(status: int, body: bytes, content_type: str) -> httpx2.MockTransport:
    headers = {"content-type": content_type}
    return httpx2.MockTransport(
        lambda request: httpx2.Response(status, content=body, headers=headers, request=request)
    )
