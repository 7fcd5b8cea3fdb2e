"""Texts as Go prints them, where the kubelet's messages hold them."""

from __future__ import annotations

import pytest

from agent.policy.go_text import print_bytes, print_map, quote


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0"),
        (1, "1"),
        (1023, "1023"),
        (1024, "1Ki"),
        (1025, "1025"),
        (1536, "1536"),
        (2048, "2Ki"),
        (512 << 20, "512Mi"),
        (1025 << 20, "1025Mi"),
        (3 << 30, "3Gi"),
        (1 << 40, "1Ti"),
        (1 << 50, "1Pi"),
        (1 << 60, "1Ei"),
        (1 << 70, "1024Ei"),
    ],
)
def test_bytes_have_the_largest_unit_that_leaves_a_whole_number(amount: int, text: str) -> None:
    assert print_bytes(amount) == text


def test_a_map_is_in_the_order_of_its_keys() -> None:
    assert print_map({"b": "2", "a": "1"}) == "map[a:1 b:2]"
    assert print_map({}) == "map[]"


def test_a_quote_within_quotes_is_escaped() -> None:
    assert quote('a "b" \\c') == '"a \\"b\\" \\\\c"'
