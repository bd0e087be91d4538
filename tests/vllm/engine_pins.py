"""What the CPU builds of vLLM lack for two configurations of the engine comparison.

`streams`: asynchronous scheduling. The platform turns it off because it gains nothing there; with empty
shells in the place of streams and events the engine runs it. A step counts as done when somebody asks
for its result, so that the order of steps does not hang on the clock.

`drafts`: two sampling kernels of 0.20.0 take fewer arguments than the engine gives them. The surplus ones
belong to a mode of benchmarks that is off. 0.32.0's kernels need nothing.
"""
import contextlib
from concurrent.futures import Future

import torch
from vllm.utils import cpu_triton_utils
from vllm.v1.executor.uniproc_executor import UniProcExecutor
from vllm.v1.worker import cpu_model_runner


class Shell:
    """A stream or event that does nothing."""

    def __init__(self, *_given, **_named):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_given, **_named: None


class Late(Future):
    """Has its result, and does not say so."""

    def done(self):
        return False


class LateExecutor(UniProcExecutor):
    """The model runs at once; the engine believes that it is still under way."""

    def collective_rpc(self, method, timeout=None, args=(), kwargs=None, non_block=False,
                       single_value=False):
        made = super().collective_rpc(method, timeout, args, kwargs, non_block, single_value)
        if not non_block or method == "execute_model":
            return made
        late = Late()
        late.set_result(made.result())
        return late


def streams(vllm_config) -> type[UniProcExecutor]:
    """Turns asynchronous scheduling on, and says what executes it."""
    torch.cuda.Stream = torch.cuda.Event = torch.Event = Shell
    torch.cuda.current_stream = Shell
    torch.cuda.stream = lambda _stream: contextlib.nullcontext()
    cpu_model_runner._torch_cuda_wrapper = contextlib.nullcontext
    vllm_config.scheduler_config.async_scheduling = True
    return LateExecutor


def drafts(_vllm_config) -> type[UniProcExecutor]:
    """Gives the kernels the arguments that they know."""
    if not hasattr(cpu_triton_utils, "rejection_greedy_sample_kernel"):
        return UniProcExecutor
    wrapper = type(cpu_triton_utils.rejection_greedy_sample_kernel)

    def cut(function, count):
        def call(*given, SYNTHETIC_MODE=False, **named):
            assert not SYNTHETIC_MODE
            return function(*given[:count], **named)
        return wrapper(call)

    cpu_triton_utils.rejection_greedy_sample_kernel = cut(
        cpu_triton_utils._rejection_greedy_sample_kernel_impl, 7)
    cpu_triton_utils.rejection_random_sample_kernel = cut(
        cpu_triton_utils._rejection_random_sample_kernel_impl, 11)
    return UniProcExecutor


PINS = {"streams": streams, "drafts": drafts}
