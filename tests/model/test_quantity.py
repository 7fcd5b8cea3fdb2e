"""Kubernetes quantities: read as Go reads them, exact, and printed in its canonical form."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.quantity import MAX_BINARY, Quantity, QuantityError, QuantityFormat
from tests.pods import quantities


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("2", 2),
        ("+2", 2),
        ("-2", -2),
        ("007", 7),
        ("1.5", Fraction(3, 2)),
        ("1.", 1),
        (".5", Fraction(1, 2)),
        ("-.5", Fraction(-1, 2)),
        (" 2 ", 2),
        ("500m", Fraction(1, 2)),
        ("1500m", Fraction(3, 2)),
        ("0.5m", Fraction(1, 2000)),
        ("7u", Fraction(7, 10**6)),
        ("7n", Fraction(7, 10**9)),
        ("2k", 2000),
        ("2M", 2 * 10**6),
        ("2G", 2 * 10**9),
        ("2T", 2 * 10**12),
        ("2P", 2 * 10**15),
        ("2E", 2 * 10**18),
        ("2Ki", 2048),
        ("2Mi", 2 << 20),
        ("1.5Gi", 3 << 29),
        ("2Ti", 2 << 40),
        ("2Pi", 2 << 50),
        ("2Ei", 2 << 60),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1e+3", 1000),
        ("1e-3", Fraction(1, 1000)),
        ("2.5e3", 2500),
        ("0e999999999", 0),
        (2, 2),
        (1.5, Fraction(3, 2)),
        (0.1, Fraction(1, 10)),
        (1e21, 10**21),
    ],
)
def test_a_quantity_is_an_exact_number(text: str | int | float, number: int | Fraction) -> None:
    assert Quantity.parse(text).number == number


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        pytest.param("0.9n", "1n", id="less than a nano is a nano"),
        pytest.param("-0.9n", "-1n", id="away from zero, below it too"),
        pytest.param("1.0000000001", "1000000001n", id="a rest below nano is rounded up"),
        pytest.param("1e-999999999", "1e-9", id="however small, something stays something"),
        pytest.param("0.1Ki", "102400m", id="a binary suffix may give a fraction"),
        pytest.param("8Ei", str(MAX_BINARY), id="binary amounts end at 2^63-1"),
        pytest.param("9999999Ei", str(MAX_BINARY), id="however large"),
        pytest.param("18446744073709551616", "18446744073709551616", id="decimal ones do not"),
        pytest.param("1000E", "1e21", id="beyond E an exponent is written"),
    ],
)
def test_sizes_at_the_edge_are_rounded_and_capped_as_in_go(text: str, canonical: str) -> None:
    assert str(Quantity.parse(text)) == canonical


_NO_NUMBER = ["", " ", "+", "-", ".", "m", "e3", "1 2", "1_000", "0x10", "1.2.3", "--1", "1m m", "inf", "nan", "\u0661"]
_NO_SUFFIX = ["1e", "1e+", "1K", "1ki", "1Kb", "1i", "1Mi2"]
_TOO_LONG = ["1e1000", "1e999999999", "9" * 37, "9" * 200, "1" + "0" * 5000, "0." + "0" * 200 + "1"]


@pytest.mark.parametrize("text", [*_NO_NUMBER, *_NO_SUFFIX, *_TOO_LONG])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        Quantity.parse(text)


@pytest.mark.parametrize("value", [None, True, float("nan"), float("inf"), [], {}, 10**400, b"1"])
def test_what_is_no_text_and_no_number_is_refused(value: object) -> None:
    with pytest.raises(QuantityError):
        Quantity.parse(value)


def test_an_error_shows_the_text_but_not_all_of_it() -> None:
    with pytest.raises(QuantityError) as refused:
        Quantity.parse("12 GB")
    assert str(refused.value) == "invalid quantity '12 GB': not a number with an optional suffix"
    with pytest.raises(QuantityError) as refused:
        Quantity.parse("x" * 10**6)
    assert len(str(refused.value)) < 150


def test_an_integer_that_cannot_even_be_printed_is_refused() -> None:
    with pytest.raises(QuantityError):
        Quantity.parse(10**5000)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("0Gi", "0"),
        ("2000", "2k"),
        ("2001", "2001"),
        ("0.5", "500m"),
        ("1500m", "1500m"),
        ("2000m", "2"),
        ("0.25u", "250n"),
        ("1000M", "1G"),
        ("100000", "100k"),
        ("2048Ki", "2Mi"),
        ("1.5Gi", "1536Mi"),
        ("1023Ki", "1023Ki"),
        ("0.5Ki", "512"),
        ("1000Ki", "1000Ki"),
        ("1024", "1024"),
        ("12e6", "12e6"),
        ("1e8", "100e6"),
        ("1e0", "1"),
        ("-1.5Gi", "-1536Mi"),
    ],
)
def test_a_quantity_is_printed_in_the_canonical_form_of_its_family(text: str, canonical: str) -> None:
    assert str(Quantity.parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "value", "milli", "whole"),
    [
        ("2", 2, 2000, True),
        ("2000m", 2, 2000, True),
        ("1001m", 2, 1001, False),
        ("1", 1, 1000, True),
        ("1n", 1, 1, False),
        ("-1500m", -2, -1500, False),
        ("0.0005", 1, 1, False),
    ],
)
def test_whole_units_and_thousandths_are_rounded_away_from_zero(text: str, value: int, milli: int, whole: bool) -> None:
    quantity = Quantity.parse(text)
    assert (quantity.value(), quantity.milli_value(), quantity.is_whole) == (value, milli, whole)


def test_the_family_of_suffixes_is_no_part_of_the_amount() -> None:
    assert Quantity.parse("1Ki") == Quantity.parse("1024") == Quantity.parse("1.024e3")
    assert len({Quantity.parse("1Ki"), Quantity.parse("1024")}) == 1
    assert Quantity.parse("1000m") < Quantity.parse("1.5") < Quantity.parse("1Ki")


def test_a_sum_is_printed_in_the_family_of_its_first_amount_that_is_not_zero() -> None:
    assert str(Quantity.parse("1Gi") + Quantity.parse("1G")) == "2073741824"
    assert str(Quantity.parse("0") + Quantity.parse("1Gi")) == "1Gi"
    assert str(Quantity.parse("1Gi") - Quantity.parse("512Mi")) == "512Mi"
    assert Quantity.parse("0.1") + Quantity.parse("0.2") == Quantity.parse("0.3")


def test_a_sum_beyond_the_cap_keeps_its_amount_when_it_is_read_back() -> None:
    most = Quantity.parse("8Ei")
    assert str(most + most) == "18446744073709551614"
    assert str(Quantity.of(1 << 64, QuantityFormat.BINARY_SI)) == "18446744073709551616"


def test_zero_is_falsy() -> None:
    assert not Quantity.parse("0Gi")
    assert Quantity.parse("-1n")


@given(quantities)
def test_the_canonical_form_reads_back_to_the_same_amount(quantity: Quantity) -> None:
    assert Quantity.parse(str(quantity)) == quantity


@given(st.integers(0, 10**30), st.integers(0, 9), st.sampled_from(["", "m", "k", "Mi", "e-4"]))
def test_a_decimal_point_moves_nothing(digits: int, places: int, suffix: str) -> None:
    shifted = f"{digits // 10**places}.{digits % 10**places:0{places}d}" if places else str(digits)
    expected = min(Quantity.parse(f"1{suffix}").number * Fraction(digits, 10**places), Fraction(10**36))
    found = Quantity.parse(f"{shifted}{suffix}").number
    if suffix == "Mi":
        expected = min(expected, Fraction(MAX_BINARY))
    assert 0 <= found - expected < Fraction(1, 10**9)
