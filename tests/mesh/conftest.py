"""Tests that run over each WebRTC stack: those that take ``transport`` or ``pair``.

Connections are made here without a network, which is what finds the verdict about aiortc elsewhere.
"""

from __future__ import annotations

import asyncio

import pytest

from pooled_nb.mesh import sctp
from tests.mesh.rtctools import STACKS, Pair


@pytest.fixture(autouse=True, scope="session")
def settled() -> None:
    """Whichever test runs first, or alone: connections are tuned, where they are."""
    asyncio.run(sctp.settle())


@pytest.fixture(params=STACKS)
def transport(request: pytest.FixtureRequest) -> str:
    """The name of a stack."""
    return str(request.param)


@pytest.fixture
def pair(transport: str) -> Pair:
    """Makes connections whose both ends run on that stack."""
    return Pair(transport, transport)
