"""KV events of host memory and of the tiers below: BlockStored and BlockRemoved with a medium,
self-describing.

A stored block is told with its tokens, its parent and its extra keys, as vLLM tells of its own blocks. A
tier has it from host memory, where it was told already; or a request that waits for it knows them.
"""
from array import array
from typing import Any

import msgspec
from vllm.distributed.kv_events import BlockRemoved, BlockStored
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

from ..events import REMOVED, STORED, stored_event
from ..version import part
from .sizes import MEDIUMS

HOST = "CPU"
KIND, HASH, GROUP, KNOWN, POSITION, SIZE, PLACE = range(7)


def has_events(config) -> bool:
    return config is not None and bool(config.enable_kv_cache_events)


def key_of(hashes: list[bytes], position: int, joined: int, is_last: bool) -> bytes:
    """vLLM's hash of a block that is as long as several hashes: the last one, or all of them."""
    if is_last:
        return hashes[(position + 1) * joined - 1]
    return b"".join(hashes[position * joined:(position + 1) * joined])


class Events:
    def __init__(self, kv_cache_config, hash_block_size: int, digest_bytes: int, tiers: list[str]):
        try:
            self._make = part("events").maker_of(kv_cache_config)
        except ModuleNotFoundError:  # 0.20
            self._make = stored_event
        self._hash_block_size, self._digest_bytes = hash_block_size, digest_bytes
        self._mediums = [HOST, *(MEDIUMS[kind] for kind in tiers)]
        self._has_tiers = bool(tiers)
        self._in_host: dict[tuple[int, bytes], BlockStored] = {}  # by group and hash

    def made_of(self, told: list[tuple], waiting: dict[str, Any]) -> list:
        """vLLM's events, in the order of what was told. waiting: Knowns, by request id."""
        made, run, places = [], [], None
        for event in told:
            if run and event[PLACE] != run[-1][PLACE]:
                made.append(self._event(run))
                run = []
            if event[KIND] == REMOVED and event[PLACE] == 0:
                self._in_host.pop((event[GROUP], event[HASH]), None)
            if event[KIND] == STORED and event[KNOWN] is None:
                stored = self._in_host.get((event[GROUP], event[HASH])) if event[PLACE] else None
                if stored is not None:
                    if run:
                        made.append(self._event(run))
                        run = []
                    self._add_stored(made, stored, self._mediums[event[PLACE]])
                    continue
                if places is None:
                    places = self._places(waiting)
                event = self._found(event, places)
            if run and not self._follows(run[-1], event):
                made.append(self._event(run))
                run = []
            run.append(event)
        if run:
            made.append(self._event(run))
        return made

    def _note(self, hashes: list[bytes], group: int, event: BlockStored) -> None:
        """What the blocks in host memory are, for tiers that store them. Not the request: it has more
        tokens than these."""
        size = event.block_size
        for i, block_hash in enumerate(hashes):
            self._in_host[group, block_hash] = msgspec.structs.replace(
                event, block_hashes=event.block_hashes[i:i + 1],
                parent_block_hash=event.block_hashes[i - 1] if i else event.parent_block_hash,
                token_ids=array("I", event.token_ids[i * size:(i + 1) * size]),
                extra_keys=event.extra_keys[i:i + 1] if event.extra_keys else None)

    @staticmethod
    def _add_stored(made: list, stored: BlockStored, medium: str) -> None:
        """A block that is in host memory, now also in a tier; behind its parent, as part of that event."""
        last = made[-1] if made else None
        if (isinstance(last, BlockStored) and last.medium == medium
                and last.group_idx == stored.group_idx and last.lora_name == stored.lora_name
                and last.block_hashes[-1] == stored.parent_block_hash
                and (last.extra_keys is None) == (stored.extra_keys is None)):
            last.block_hashes += stored.block_hashes
            last.token_ids += stored.token_ids.tolist()
            if stored.extra_keys is not None:
                last.extra_keys += stored.extra_keys
            return
        made.append(msgspec.structs.replace(
            stored, medium=medium, token_ids=stored.token_ids.tolist(),
            block_hashes=list(stored.block_hashes),
            extra_keys=None if stored.extra_keys is None else list(stored.extra_keys)))

    def _places(self, waiting: dict[str, Any]) -> dict[bytes, tuple[Any, int]]:
        return {block_hash: (known, i) for known in waiting.values()
                for i, block_hash in enumerate(known.request.block_hashes)}

    def _found(self, event: tuple, places: dict) -> tuple:
        known, last = places.get(event[HASH][-self._digest_bytes:], (None, -1))
        if known is None:
            return event
        joined = event[SIZE] // self._hash_block_size
        return (*event[:KNOWN], known, (last + 1) // joined - 1, *event[SIZE:])

    @staticmethod
    def _follows(last: tuple, event: tuple) -> bool:
        """Whether both belong into one event."""
        if any(last[i] != event[i] for i in (KIND, GROUP, PLACE)):
            return False
        if event[KIND] == REMOVED:
            return True
        return (event[KNOWN] is not None and last[KNOWN] is event[KNOWN]
                and event[POSITION] == last[POSITION] + 1)

    def _event(self, run: list[tuple]) -> BlockStored | BlockRemoved:
        first, hashes = run[0], [event[HASH] for event in run]
        medium = self._mediums[first[PLACE]]
        if first[KIND] == REMOVED:
            return BlockRemoved(block_hashes=[maybe_convert_block_hash(h) for h in hashes],
                                medium=medium, group_idx=first[GROUP])
        if first[KNOWN] is None:  # no request has its tokens any longer
            return BlockStored(block_hashes=[maybe_convert_block_hash(h) for h in hashes],
                               parent_block_hash=None, token_ids=[], block_size=first[SIZE],
                               lora_id=None, medium=medium, lora_name=None, group_idx=first[GROUP])
        request, position = first[KNOWN].request, first[POSITION]
        parent = None
        if position:
            parent = key_of(request.block_hashes, position - 1,
                            first[SIZE] // self._hash_block_size,
                            len(first[HASH]) == self._digest_bytes)
        event = self._make(request, hashes, first[GROUP], position, parent, first[SIZE])
        event.medium = medium
        if self._has_tiers and first[PLACE] == 0:
            self._note(hashes, first[GROUP], event)
        return event
