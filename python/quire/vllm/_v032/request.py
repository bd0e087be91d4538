"""What a Request of vLLM 0.32 has of its own: counters of tokens in flight."""
from typing import Any

from vllm.v1.request import Request

from .. import request as common

IN_FLIGHT, STALE, DROPS = range(3)


def counted(index: int, convert=int) -> property:
    """A counter of the scheduler's."""

    def read(self):
        core, number = self._quire
        return convert(core.flight(number)[index])

    return property(read)


class BoundRequest(common.BoundRequest):
    num_in_flight_tokens = counted(IN_FLIGHT)
    num_stale_output_tokens = counted(STALE)
    drop_stale_output = counted(DROPS, bool)


def ended(request: Request, *last: int) -> None:
    """Nothing of it is waited for any more."""
    common.ended(request, *last)
    request.num_in_flight_tokens = request.num_stale_output_tokens = 0
    request.drop_stale_output = False


def wants_logprobs(request: Request) -> bool:
    return request.sampling_params is not None and request.sampling_params.num_logprobs is not None


def rules_of(request: Request) -> dict[str, Any]:
    rules = common.rules_of(request) | {"wants_logprobs": int(wants_logprobs(request))}
    if request.lora_request is not None:
        rules["lora_path"] = request.lora_request.lora_path
    return rules


def go_on(session: Request, update, hash_block_size: int) -> None:
    """The next input of a session: hashes of what is cut off go with it."""
    kept = session.num_computed_tokens
    del session.__dict__["block_hashes"][kept // hash_block_size:]
    common.take_input(session, update, kept)
    session.max_tokens = update.max_tokens
