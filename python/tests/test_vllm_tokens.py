"""Token ids of any shape come out of a Python list as they went in; no vLLM is needed for it."""
import enum
import hashlib
import pickle
import random
from types import SimpleNamespace

import pytest

from quire._vllm import BlockHasher

NONE_HASH = bytes(range(32))
BLOCK_SIZE = 4


class Token(enum.IntEnum):
    """An int, but not a plain one."""

    END = 7


def request_of(tokens: list) -> SimpleNamespace:
    return SimpleNamespace(block_hashes=[], _all_token_ids=tokens, mm_features=[],
                           lora_request=None, cache_salt=None, prompt_embeds=None)


def hashes_of(tokens: list, fallback=None) -> list[bytes]:
    module = SimpleNamespace(NONE_HASH=NONE_HASH)
    return BlockHasher("sha256", BLOCK_SIZE, module, fallback)(request_of(tokens))


def expected_of(tokens: list) -> list[bytes]:
    parent, made = NONE_HASH, []
    for at in range(0, len(tokens) - BLOCK_SIZE + 1, BLOCK_SIZE):
        block = (parent, tuple(int(token) for token in tokens[at:at + BLOCK_SIZE]), None)
        parent = hashlib.sha256(pickle.dumps(block, protocol=5)).digest()
        made.append(parent)
    return made


@pytest.mark.parametrize("tokens", [
    [0, 1, 255, 256], [65535, 65536, 128_000, 2**30 - 1], [2**30, 2**31 - 1, 0, 0],
    [-1, -128_000, -2**30, -2**31], [True, False, True, False], [Token.END] * 4,
    [1, 2, 3, 4, 5], list(range(1000))])
def test_all_shapes_of_tokens(tokens):
    assert hashes_of(tokens) == expected_of(tokens)


def test_random_tokens():
    rng = random.Random(1)
    for _ in range(200):
        bits = rng.choice([8, 16, 17, 30, 31])
        tokens = [rng.randrange(1 << bits) for _ in range(rng.randrange(200))]
        assert hashes_of(tokens) == expected_of(tokens)


@pytest.mark.parametrize("odd", [2**31, -2**31 - 1, 2**63, 2**200])
def test_tokens_beyond_32_bits_are_left_to_the_other_hasher(odd):
    assert hashes_of([1, 2, 3, odd], lambda _request: ["theirs"]) == ["theirs"]


def test_a_token_that_empties_its_own_list():
    """Asked for its value it runs Python code; what is no longer there is not read."""
    tokens = [1, 2, 3, 4]

    class Odd:
        def __index__(self):
            tokens.clear()
            return 7

    tokens[1] = Odd()
    assert hashes_of(tokens, lambda _request: ["theirs"]) == ["theirs"]
