"""What all sections of the configuration are made of: their base, the kinds of text in them, and what is checked in several."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from agent.errors import AgentError
from agent.model.quantity import Quantity


class Section(BaseModel):
    """A part of the configuration: unknown keys and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


PathText = Annotated[str, Field(min_length=1)]
QuantityText = Annotated[str, Field(max_length=64)]


def _mode(text: str) -> str:
    if not re.fullmatch("0?[0-7]{3}", text, re.ASCII):
        raise ValueError('expected three octal digits in quotes, such as "0660"')
    return text


SocketMode = Annotated[str, AfterValidator(_mode)]


def check_certificates(certificate: str, key: str, client_ca: str) -> None:
    """Raises ValueError, as all of these do for pydantic to collect: one file is given without the other that it needs."""
    if bool(certificate) != bool(key) or (client_ca and not certificate):
        raise ValueError("certificate and key belong together, and clientCA to both")


def check_address(address: str, client_ca: str) -> None:
    """Raises ValueError for an address of others with nobody who says which clients to trust."""
    if address not in ("127.0.0.1", "::1") and not client_ca:
        raise ValueError(f"address {address}: beyond loopback certificate, key and clientCA are needed")


def quantities(values: dict[str, str]) -> dict[str, str]:
    """Check resource amounts and return them as they are. Raises ValueError for one that is no amount, or is negative."""
    for name, text in values.items():
        try:
            amount = Quantity.parse(text)
        except AgentError as error:  # pydantic collects ValueErrors only
            raise ValueError(f"{name}: {error}") from error
        if amount.number < 0:
            raise ValueError(f"{name}: {text!r} is negative")
    return values
