"""Pool: blocks, keys, events, and what is refused."""

import array

import pytest

import quire


def hashes(n):
    return [bytes([i + 1]) * 32 for i in range(n)]


def test_life_of_blocks():
    pool = quire.Pool(10)
    blocks = pool.take(3)
    assert blocks == [1, 2, 3] and pool.draw() == "NAAAEEEEEE"
    pool.cache(blocks, hashes(3), block_size=16)
    pool.free(array.array("I", blocks[::-1]))
    assert pool.draw() == "NCCCEEEEEE" and pool.draw(1, 2) == "CC"
    assert pool.usage() == {"total": 10, "empty": 6, "cached": 3, "active": 0, "null_blocks": 1}
    assert pool.lookup(hashes(5)) == [1, 2, 3]
    assert pool.lookup(b"".join(hashes(2)), hash_len=32) == [1, 2]
    assert pool.lookup(hashes(3), [1]) == [] and pool.lookup([]) == []
    pool.touch([1, 2])
    assert pool.block(1) == {"ref_cnt": 1, "group_id": 0, "hash": hashes(1)[0], "state": "A"}
    assert pool.free_queue() == [4, 5, 6, 7, 8, 9, 3]
    assert pool.num_free == 7 and pool.num_keys == 3 and pool.num_blocks == 10
    assert pool.usage_share == pytest.approx(2 / 9)
    pool.evict([1])
    assert pool.lookup(hashes(3)) == []
    with pytest.raises(quire.BUSY):
        pool.reset_prefix_cache()
    pool.free([2, 1])
    pool.reset_prefix_cache()
    assert pool.num_keys == 0
    pool.check()


def test_two_groups():
    pool = quire.Pool(10)
    a, b = pool.take(2), pool.take(2)
    pool.cache(a, hashes(2), group_id=0)
    pool.cache(b, hashes(2), group_id=1)
    assert pool.lookup(hashes(2), [0, 1]) == [(1, 3), (2, 4)]


def test_events():
    pool = quire.Pool(4, events=True)
    blocks = pool.take(3)
    pool.cache(blocks[:1], hashes(1), block_size=16)
    pool.cache(blocks, hashes(3), num_cached_blocks=1, block_size=16)
    pool.free(blocks[::-1])
    pool.take(1)
    stored, more, removed = pool.take_events()
    assert stored == {"kind": "stored", "group_id": 0, "blocks": [1], "hashes": hashes(1),
                      "first_block": 0, "block_size": 16, "parent": None}
    assert more["blocks"] == [2, 3] and more["parent"] == hashes(1)[0] and more["first_block"] == 1
    assert removed == {"kind": "removed", "group_id": 0, "blocks": [3], "hashes": [hashes(3)[2]],
                       "still_cached": False}
    assert pool.take_events() == []
    pool.free([3])
    pool.reset_prefix_cache()
    assert pool.take_events() == [{"kind": "cleared"}]


def test_errors_have_the_librarys_names():
    pool = quire.Pool(4)
    with pytest.raises(quire.NO_SPACE) as caught:
        pool.take(3), pool.take(1)
    assert caught.value.status == 1 and caught.value.name == "QUIRE_NO_SPACE"
    assert isinstance(caught.value, quire.Error)
    for blocks, error in (([0], quire.E_NULL_BLOCK), ([9], quire.E_UNKNOWN_BLOCK),
                          ([1, 1], quire.E_DOUBLE_FREE)):
        before = pool.draw()
        with pytest.raises(error):
            pool.free(blocks)
        assert pool.draw() == before
    assert issubclass(quire.E_UNKNOWN_BLOCK, LookupError)
    assert issubclass(quire.E_RANGE, ValueError)
    assert issubclass(quire.E_NOMEM, MemoryError)


def test_misuse():
    with pytest.raises(quire.E_CONFIG):
        quire.Pool(0)
    with pytest.raises(TypeError):
        quire.Pool("10")
    pool = quire.Pool(4)
    with pytest.raises(quire.E_RANGE):
        pool.take(4)
    for wrong in (-1, 2**64):
        with pytest.raises(OverflowError):
            pool.take(wrong)
    with pytest.raises(OverflowError):
        pool.free([-1])
    with pytest.raises(OverflowError):
        pool.free([2**32 + 1])
    with pytest.raises(TypeError):
        pool.free([None])
    with pytest.raises(ValueError):
        pool.cache([1], [b"x" * 32, b"x" * 16])
    with pytest.raises(TypeError):
        pool.cache([1], ["x" * 32])
    with pytest.raises(ValueError):
        pool.lookup(b"x" * 33, hash_len=32)
    with pytest.raises(quire.E_RANGE):
        pool.cache([1], hashes(1), num_full_blocks=2)
    with pytest.raises(quire.E_RANGE):
        pool.draw(0, 5)
    with pytest.raises(quire.E_UNKNOWN_BLOCK):
        pool.block(4)
    with pytest.raises(TypeError):
        type("Sub", (quire.Pool,), {})
    pool.close()
    pool.close()
    for call in (pool.usage, pool.check, pool.free_queue, lambda: pool.take(1),
                 lambda: pool.free([1]), lambda: pool.num_free, lambda: pool.lookup(hashes(1))):
        with pytest.raises(quire.Closed):
            call()
