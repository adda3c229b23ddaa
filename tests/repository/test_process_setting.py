"""Settings of the whole process are put back, however those who change them overlap."""

import torch

from unspool.runtime.network.linear import ONEDNN, Bfloat16Linear
from unspool.runtime.process_setting import ProcessSetting


def test_two_who_overlap_leave_a_setting_as_it_was():
    values = ["before"]
    setting = ProcessSetting(lambda: values[-1], values.append)
    setting.hold("first")
    setting.hold("second")
    setting.let_go()  # the first goes while the second still wants it
    assert values[-1] == "second"
    setting.let_go()
    assert values == ["before", "first", "second", "before"]


def test_a_failure_inside_puts_it_back():
    values = [1]
    setting = ProcessSetting(lambda: values[-1], values.append)
    try:
        with setting.set_to(2):
            raise KeyError
    except KeyError:
        pass
    assert values == [1, 2, 1]


def test_a_product_without_onednn_leaves_it_on_for_others(monkeypatch):
    """Another thread's product begins inside this one and ends after it."""
    assert torch.backends.mkldnn.enabled
    product = Bfloat16Linear(torch.ones(4, 4, dtype=torch.bfloat16), None)
    inner, seen = torch.nn.functional.linear, []

    def meanwhile(*given):
        seen.append(torch.backends.mkldnn.enabled)
        ONEDNN.hold(False)
        return inner(*given)

    monkeypatch.setattr(torch.nn.functional, "linear", meanwhile)
    product(torch.ones(1, 4, dtype=torch.bfloat16))
    ONEDNN.let_go()
    assert seen == [False]
    assert torch.backends.mkldnn.enabled
