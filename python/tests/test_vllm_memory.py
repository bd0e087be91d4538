"""Memory does not grow while requests go through quire.vllm; vllm_growth.py is the long form."""
import pytest
import vllm_growth
import vllm_kit


@pytest.mark.parametrize("number", range(6))
def test_no_growth(pytestconfig, number):
    vllm_kit.need_vllm(pytestconfig)
    for what, growth, bound in vllm_growth.grown(vllm_growth.kinds()[number](), 600):
        assert growth <= bound, what
