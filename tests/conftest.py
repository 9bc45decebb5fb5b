"""Shared by the tests: nothing needs the network or a file outside the repository."""

import pytest
from asking import TRANSPORT


@pytest.fixture(params=["on", "off"], ids=["streamed", "whole"])
def stream_flag(request) -> str:
    """Runs a test over both transports."""
    TRANSPORT["stream"] = request.param
    return str(request.param)
