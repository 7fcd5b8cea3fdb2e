"""The head of a request, read without a connection. What a server makes of it is in `test_http`."""

from __future__ import annotations

import pytest

from agent.serve.http_messages import MalformedRequestError, parse_request


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_connection_is_kept_unless_the_client_says_otherwise(version: str) -> None:
    head = f"GET / HTTP/{version}\r\nConnection: close\r\n\r\n".encode()
    assert parse_request(head)[1] is False
    assert parse_request(head.replace(b"close", b"keep-alive"))[1] is (version == "1.1")


def test_any_bytes_are_a_request_or_a_refusal() -> None:
    for head in (b"\r\n\r\n", b"\x00\xff\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n\r\n\r\n", b"   \r\n\r\n"):
        with pytest.raises(MalformedRequestError):
            parse_request(head)
