"""Hasher and Chain: one-shot and incremental hashing agree, and are vLLM's."""

import array
import hashlib
import pickle

import pytest

import quire

ALGORITHMS = sorted(quire.HASH_ALGORITHMS)


def pickled(parent, tokens, extra=None):
    return hashlib.sha256(pickle.dumps((parent, tuple(tokens), extra), protocol=5)).digest()


def test_sha256_is_the_hash_of_a_pickle():
    hasher = quire.Hasher("sha256", 16, seed="0")
    none_hash = hashlib.sha256(pickle.dumps("0", protocol=5)).digest()
    assert hasher.none_hash == none_hash
    tokens = [0, 1, 255, 256, 65535, 65536, 2**31 - 1, 5] * 5
    first = pickled(none_hash, tokens[:16])
    second = pickled(first, tokens[16:32])
    assert hasher.hash(tokens) == [first, second]
    assert hasher.hash_block(None, tokens[:16]) == first
    assert hasher.hash_block(first, tokens[16:32]) == second


def test_salt_is_part_of_the_first_block_alone():
    hasher = quire.Hasher(seed="0")
    tokens = list(range(32))
    first = pickled(hasher.none_hash, tokens[:16], ("salt",))
    assert hasher.hash(tokens, cache_salt="salt") == [first, pickled(first, tokens[16:])]
    assert hasher.hash_block(None, tokens[:16], [("cache_salt", "salt")]) == first


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_chain_gives_the_same_hashes(algo):
    hasher = quire.Hasher(algo, 16, seed="7")
    tokens = list(range(1000))
    whole = hasher.hash(tokens, lora_name="adapter", cache_salt="s", mm_features=[("img", 20, 30)])
    assert len(whole) == 62 and len(set(whole)) == 62
    assert {len(h) for h in whole} == {hasher.digest_size} == {quire.HASH_ALGORITHMS[algo]}
    chain = hasher.chain(lora_name="adapter", cache_salt="s", mm_features=[("img", 20, 30)])
    parts = []
    for start in range(0, 1000, 37):
        parts += chain.append(tokens[start:start + 37])
    assert parts == whole
    assert chain.num_tokens == 1000 and chain.num_blocks == 62
    assert b"".join(whole) == hasher.hash(tokens, lora_name="adapter", cache_salt="s",
                                          mm_features=[("img", 20, 30)], joined=True)
    assert whole != hasher.hash(tokens)


@pytest.mark.parametrize("make", [
    list, tuple, iter, lambda t: array.array("i", t), lambda t: array.array("q", t),
    lambda t: array.array("I", t), lambda t: memoryview(array.array("l", t)),
    lambda t: array.array("h", t)])
def test_tokens_of_all_kinds(make):
    hasher = quire.Hasher(seed="0")
    tokens = list(range(100, 150))
    assert hasher.hash(make(tokens)) == hasher.hash(tokens)


def test_strided_and_wrong_buffers():
    hasher = quire.Hasher(seed="0")
    with pytest.raises((BufferError, ValueError)):
        hasher.hash(memoryview(array.array("i", range(32)))[::2])
    with pytest.raises(TypeError, match="whole numbers"):
        hasher.hash(array.array("d", [1.0] * 16))
    with pytest.raises(TypeError):
        hasher.hash("tokens")
    with pytest.raises(TypeError):
        hasher.hash([1.5] * 16)
    with pytest.raises(TypeError):
        hasher.hash(7)


@pytest.mark.parametrize("tokens", [[2**31], [-2**31 - 1], [2**70], array.array("q", [2**40])])
def test_tokens_that_do_not_fit(tokens):
    with pytest.raises(OverflowError):
        quire.Hasher().hash(tokens)


def test_settings():
    with pytest.raises(quire.E_UNKNOWN_NAME):
        quire.Hasher("md5")
    with pytest.raises(quire.E_CONFIG):
        quire.Hasher(block_size=70_000)
    with pytest.raises(TypeError):
        quire.Hasher(no_such=1)
    with pytest.raises(ValueError):
        quire.Hasher(profile="vllm-9")
    assert quire.Hasher().none_hash != quire.Hasher().none_hash
    assert quire.Hasher("sha256", none_hash=b"x" * 32).none_hash == b"x" * 32


def test_closed():
    hasher = quire.Hasher()
    chain = hasher.chain()
    hasher.close()
    hasher.close()
    for call in (lambda: hasher.hash([1]), lambda: hasher.none_hash, hasher.chain,
                 lambda: chain.append([1]), lambda: hasher.hash_block(None, [1])):
        with pytest.raises(quire.Closed, match="closed"):
            call()
    assert chain.num_tokens == 0


def test_closing_while_arguments_are_converted():
    hasher = quire.Hasher()

    class Sly:
        def __index__(self):
            hasher.close()
            return 1

    with pytest.raises(quire.Closed):
        hasher.hash([Sly()] * 16)


def test_list_that_shrinks_while_it_is_read():
    tokens = []

    class Sly:
        def __index__(self):
            tokens.clear()
            return 1

    tokens += [Sly() for _ in range(16)]
    with pytest.raises(IndexError):
        quire.Hasher().hash(tokens)


@pytest.mark.parametrize("profile", ["default", "vllm-0.20", "vllm-0.32"])
def test_path_of_an_adapter(profile):
    """vLLM 0.32 hashes it."""
    hasher = quire.Hasher(seed="0", profile=profile)
    tokens = list(range(16))
    one, other = (hasher.hash(tokens, lora_name="a", lora_path=path) for path in ("/b", "/c"))
    assert (one != other) == (profile == "vllm-0.32")
    if profile == "vllm-0.32":
        keys = [("lora_name", "a"), ("lora_path", "/b")]
        assert hasher.hash_block(None, tokens, keys) == one[0]
    sched = quire.Scheduler(num_gpu_blocks=100, max_model_len=100, profile=profile)
    assert sched.add("a", tokens, lora_name="a", lora_id=1, lora_path="/b") > 0
