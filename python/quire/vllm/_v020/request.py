"""What a Request of vLLM 0.20 has of its own."""
from typing import Any

from vllm.v1.request import Request

from .. import request as common

BoundRequest = common.BoundRequest
ended = common.ended


def wants_logprobs(request: Request) -> bool:
    return request.sampling_params is not None and request.sampling_params.logprobs is not None


def rules_of(request: Request) -> dict[str, Any]:
    return common.rules_of(request) | {"wants_logprobs": int(wants_logprobs(request))}


def go_on(session: Request, update, _hash_block_size: int) -> None:
    """The next input of a session. vLLM keeps the hash of a block whose end is cut off here."""
    session.update_block_hashes()
    common.take_input(session, update, session.num_computed_tokens)
