"""What the tests of the server share."""

import pytest


@pytest.fixture(scope="module")
def quiet():
    """The servers of this process write no lines between those of pytest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unspool.apps.server.handler.log", lambda event, record: None)
        yield
