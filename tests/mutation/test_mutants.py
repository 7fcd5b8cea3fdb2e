"""What is said of a mutant is what it changed. The mutants here are written by hand, in the form in which mutmut writes them."""

from __future__ import annotations

import pytest

from tests.mutation.mutants import Mutant, changes

CODE = '''
def x_room__mutmut_orig(free, need):
    """How much is left."""
    if free < need:
        raise ValueError("too few")
    return free - need


def x_room__mutmut_1(free, need):
    """How much is left."""
    if free <= need:
        raise ValueError("too few")
    return free - need


def x_room__mutmut_2(free, need):
    """How much is left."""
    if free < need:
        raise ValueError("TOO FEW")
    return free - need


def x_room__mutmut_3(free, need=1):
    """How much is left."""
    if free < need:
        raise ValueError("too few")
    return free - need
'''


def test_a_mutant_is_the_lines_in_which_it_differs() -> None:
    compared, text, default = changes("m", CODE, ["x_room__mutmut_1", "x_room__mutmut_2", "x_room__mutmut_3"])
    assert compared == Mutant("m", "x_room__mutmut_1", "if free < need:", "if free <= need:")
    assert (compared.function, compared.text_only) == ("x_room", False)
    assert text.text_only
    assert (default.removed, default.added) == ("def x_room(free, need):", "def x_room(free, need=1):")


@pytest.mark.parametrize(
    ("removed", "added", "text_only"),
    [
        ('return f"{a} is left"', 'return f"{a} IS LEFT"', True),
        ('name == "cpu" and free', 'name == "XXcpuXX" and free', True),
        ('name == "cpu" and free', 'name == "cpu" or free', False),
        ('raise E("a", hint="b")', 'raise E("a", hint=None)', False),
    ],
)
def test_a_text_is_what_stands_between_quotes(removed: str, added: str, *, text_only: bool) -> None:
    assert Mutant("m", "x_f__mutmut_1", removed, added).text_only is text_only
