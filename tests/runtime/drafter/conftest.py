"""Networks of a few numbers: more than one thread would only wait for each other."""

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def single_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
