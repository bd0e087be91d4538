"""vLLM's Request, while it belongs to a Quire scheduler.

What changes in every step lives in C. A Request that was added becomes a BoundRequest, which reads
it from there when somebody asks; when it ends it gets its last values and its own class back.

    Request ── add_request ──► BoundRequest + Request ── ends ──► Request
"""
from dataclasses import replace
from functools import cache
from typing import Any

from vllm.v1.request import Request, RequestStatus
from vllm.v1.utils import tensor_data

NEW = (RequestStatus.WAITING, RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR)
STATUS, COMPUTED, PLACEHOLDERS, PREEMPTIONS, DRAFTS, PREFILL = range(6)
NEVER = 1 << 30  # as good as any larger number of tokens: no request has so many
LOWEST, HIGHEST = -1 << 31, (1 << 31) - 1  # of token ids


class Refused(ValueError):
    """A request that cannot be served here, and why."""


def owned(index: int, convert=int) -> property:
    """A value of the scheduler's, which alone changes it."""

    def read(self):
        core, number = self._quire
        return convert(core.info(number)[index])

    return property(read)


class BoundRequest:
    """The state of a Request that a scheduler has; goes before the Request's own class."""

    status = owned(STATUS, RequestStatus)
    num_computed_tokens = owned(COMPUTED)
    num_output_placeholders = owned(PLACEHOLDERS)
    num_preemptions = owned(PREEMPTIONS)
    is_prefill_chunk = owned(PREFILL, bool)

    @property
    def spec_token_ids(self) -> list[int]:
        core, number = self._quire
        return core.drafts(number)

    @property
    def num_tokens_with_spec(self) -> int:
        core, number = self._quire
        return self.num_tokens + core.info(number)[DRAFTS]

    @property
    def block_hashes(self):
        """Made up to the last full block when somebody asks: the scheduler has its own."""
        hashes = self.__dict__["block_hashes"]
        if self._block_hasher is not None:
            stand_in = _HashView(self, hashes)
            hashes.extend(self._block_hasher(stand_in))
        return hashes


@cache
def bound(kind: type, state: type[BoundRequest]) -> type:
    """The class that a Request of this class has while it belongs to a scheduler."""
    return type(kind.__name__, (state, kind), {"_unbound": kind})


class _HashView:
    """What a block hasher looks at, without the property that asks it."""

    def __init__(self, request: Request, hashes: list[bytes]):
        self._request, self.block_hashes = request, hashes

    def __getattr__(self, name: str):
        return getattr(self._request, name)


def limit(number: int) -> int:
    return max(0, min(number, NEVER))


def rules_of(request: Request) -> dict[str, Any]:
    """What the scheduler must know of a request, beside its tokens. Clients choose numbers without a
    limit: what no request reaches, and tokens that no model samples, are left out."""
    rules = {"id": request.request_id, "max_tokens": limit(request.max_tokens),
             "client_index": request.client_index, "priority": request.priority,
             "arrival_time": request.arrival_time,
             "skip_reading_prefix": int(bool(request.skip_reading_prefix_cache)),
             "is_resumable": int(request.resumable)}
    params = request.sampling_params
    if request.pooling_params is not None:
        rules["is_pooling"] = 1
    elif params is not None:
        rules["min_tokens"] = limit(params.min_tokens)
        if params.eos_token_id is not None:
            rules["eos_token_id"] = params.eos_token_id
        if params.stop_token_ids:
            rules["stop_token_ids"] = [token for token in params.stop_token_ids
                                       if LOWEST <= token <= HIGHEST]
        repetition = params.repetition_detection
        if repetition is not None:
            rules["repetition_max_pattern"] = limit(repetition.max_pattern_size)
            rules["repetition_min_pattern"] = limit(repetition.min_pattern_size)
            rules["repetition_min_count"] = limit(repetition.min_count)
    if request.structured_output_request is not None:
        rules["use_grammar"] = 1
    if request.mm_features:
        rules["features"] = [feature_of(feature) for feature in request.mm_features]
    if request.lora_request is not None:
        rules["lora_name"] = request.lora_request.lora_name
        rules["lora_id"] = request.lora_request.lora_int_id
    if request.cache_salt is not None:
        rules["cache_salt"] = request.cache_salt
    return rules


def feature_of(feature) -> tuple:
    """An image: its name, place, number of embeddings, and which placeholders get one."""
    place = feature.mm_position
    flags = None if place.is_embed is None else bytes(map(int, place.is_embed.tolist()))
    return feature.identifier, place.offset, place.length, place.get_num_embeds(), flags


def prompt_of(request: Request) -> dict[str, Any]:
    """What a prompt has beside its tokens: the hashes that the Request made of it, embeddings."""
    made = {}
    if request.block_hashes:
        made.update(hashes=b"".join(request.block_hashes), num_hashes=len(request.block_hashes))
    if request.prompt_embeds is not None:
        if request.resumable:
            raise NotImplementedError("quire.vllm: a session whose prompt is embeddings; give it "
                                      "token ids")
        made["prompt_embeds"] = bytes(tensor_data(request.prompt_embeds))
    return made


def bind(request: Request, core, number: int, state: type[BoundRequest]) -> None:
    request._quire = (core, number)
    request.__class__ = bound(type(request), state)


def ended(request: Request, status: int, computed: int, preemptions: int, is_prefill: int) -> None:
    """Its last values, as its own."""
    request.__class__ = request._unbound
    del request._quire
    request.status = RequestStatus(status)
    request.num_computed_tokens = computed
    request.num_output_placeholders = 0
    request.num_preemptions = preemptions
    request.is_prefill_chunk = bool(is_prefill)
    request.spec_token_ids = []
    request.update_block_hashes()


def take_input(session: Request, update, kept: int) -> None:
    """The next input of a session, in its Request: what was computed becomes prompt, the last
    sampled token is dropped, and the input follows. kept: computed tokens."""
    tokens = session._all_token_ids
    session.prompt_token_ids.extend(tokens[session.num_prompt_tokens:kept])
    del tokens[kept:]
    session._output_token_ids.clear()
    for feature in update.mm_features or ():
        place = feature.mm_position
        feature.mm_position = replace(place, offset=place.offset + len(tokens))
        session.mm_features.append(feature)
    given = update.prompt_token_ids or ()
    tokens.extend(given)
    session.prompt_token_ids.extend(given)
    session.update_block_hashes()
    session.num_prompt_tokens = len(session.prompt_token_ids)
    session.arrival_time, session.sampling_params = update.arrival_time, update.sampling_params
