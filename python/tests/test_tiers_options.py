"""The options of QuireConnector, and where blocks lie in tensors. Needs no vLLM."""
from pathlib import Path

import pytest

from quire.vllm.tiers.options import FILE, HOST, OBJECT, REDIS, read_options
from quire.vllm.tiers.regions import Region, View, merge, regions_of

FILE_TIER = {"path": "/x", "bytes": 1 << 20}


def test_options_and_their_defaults():
    made = read_options({"host_bytes": "1.5GiB", "object": {"bucket": "kv"},
                         "redis": {"servers": ["a:1"]}, "file": FILE_TIER})
    assert made.host["host_bytes"] == 3 << 29 and made.host["self_test"] is True
    assert [kind for kind, _ in made.tiers] == ["file", "redis", "object"]  # the fastest first
    assert made.tiers[1][1]["timeout_ms"] == 5000 and made.tiers[0][1]["bytes"] == 1 << 20


@pytest.mark.parametrize("text, size", [("7", 7), ("2K", 2048), ("2KiB", 2048), ("3MiB", 3 << 20),
                                        ("1 TiB", 1 << 40), (12, 12)])
def test_sizes(text, size):
    assert read_options({"host_bytes": text}).host["host_bytes"] == size


@pytest.mark.parametrize("given, sentence", [
    ({}, "give host_bytes"),
    ({"host_bytes": 1, "host_blocks": 9}, "give host_bytes"),
    ({"host_bytes": "x"}, 'invalid value "x" for host_bytes'),
    ({"host_bytes": 0}, r"invalid value 0 for host_bytes \(expected 1\.\."),
    ({"host_bytes": True}, "expected a whole number"),
    ({"host_blocks": 1}, r"expected 2\.\."),
    ({"host_bytes": 1, "hostbytes": 1}, "unknown option hostbytes"),
    ({"host_bytes": 1, "hugepages": "yes"}, '"auto" | "on" | "off"'),
    ({"host_bytes": 1, "file": {"path": "/x"}}, "file.bytes is missing"),
    ({"host_bytes": 1, "file": {"bytes": 1}}, "file.path is missing"),
    ({"host_bytes": 1, "file": FILE_TIER | {"paths": 1}}, "unknown option file.paths"),
    ({"host_bytes": 1, "file": FILE_TIER | {"shared": 1}}, "invalid value 1 for file.shared"),
    ({"host_bytes": 1, "file": FILE_TIER | {"admit": "some"}}, 'file.admit .expected "all"'),
    ({"host_bytes": 1, "file": "here"}, "expected an object with options"),
    ({"host_bytes": 1, "redis": {"servers": []}}, "redis.servers"),
    ({"host_bytes": 1, "redis": {"servers": [1]}}, "redis.servers"),
    ({"host_bytes": 1, "redis": {"servers": ["a"], "timeout_ms": 0}}, r"redis.timeout_ms"),
    ({"host_bytes": 1, "object": {"endpoint": "http://127.0.0.1:9"}}, "object.bucket is missing"),
    ({"host_bytes": 1, "object": {"bucket": "kv", "connections": 257}}, "object.connections"),
    ({"host_bytes": 1, "object": {"bucket": "kv", "virtual_host": True}}, '"auto" | "on" | "off"'),
    ({"host_bytes": 1, "self_test": "no"}, "self_test .expected true | false"),
])
def test_refusals(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_options(given)


def test_each_option_says_what_it_means():
    for option in HOST + FILE + REDIS + OBJECT:
        assert option.meaning and option.range_text()


# -- regions

def view(shape, strides=None, pointer=4096, element=2):
    if strides is None:
        strides, step = [], 1
        for size in reversed(shape):
            strides.insert(0, step)
            step *= size
    return View(pointer, element, tuple(zip(shape, strides)))


def test_k_and_v_apart():
    assert regions_of("l", view((2, 10, 4, 8)), 10) == [Region(4096, 64, 64),
                                                        Region(4096 + 640, 64, 64)]


def test_k_and_v_together():
    assert regions_of("l", view((10, 2, 4, 8)), 10) == [Region(4096, 128, 128)]


def test_dimensions_in_another_order():
    """Heads before tokens inside of a block, as HND; then heads outside of blocks."""
    assert regions_of("l", view((10, 4, 3, 8), (96, 8, 32, 1)), 10) == [Region(4096, 192, 192)]
    made = regions_of("l", view((10, 4, 3, 8), (32, 8, 320, 1)), 10)
    assert made == [Region(4096 + head * 640, 64, 64) for head in range(3)]


def test_blocks_of_the_kernel():
    """A block of vLLM is three of the kernel: they follow each other, or lie apart."""
    assert regions_of("l", view((30, 4, 8)), 10) == [Region(4096, 192, 192)]
    made = regions_of("l", view((30, 4, 8), (64, 8, 1)), 10)
    assert made == [Region(4096 + part * 128, 384, 64) for part in range(3)]


def test_packed_layers_become_one_region():
    """[block][layer][page]: three layers side by side."""
    layers = [regions_of(f"l{i}", view((10, 4, 8), (96, 8, 1), 4096 + 64 * i), 10) for i in range(3)]
    assert merge([r for made in layers for r in made], 10) == [Region(4096, 192, 192)]


def test_aliases_count_once():
    regions = regions_of("a", view((2, 10, 4, 8)), 10) + regions_of("b", view((2, 10, 4, 8)), 10)
    assert len(merge(regions, 10)) == 2
    shorter = regions_of("c", view((10, 2, 8), (32, 8, 1)), 10)  # another group's page, in the same
    assert merge(regions_of("a", view((10, 4, 8)), 10) + shorter, 10) == [Region(4096, 64, 64)]


def test_heads_of_all_layers_side_by_side():
    """[block][head][layer][K, V][token]: 0.20 allocates so for backends that read heads first."""
    heads, layers, tokens = 4, 3, 8
    strides = (tokens, heads * layers * 2 * tokens, layers * 2 * tokens, 1)  # of (2, blocks, heads, tokens)
    made = [regions_of(f"l{i}", view((2, 10, heads, tokens), strides, 4096 + 2 * i * tokens * 2), 10)
            for i in range(layers)]
    assert all(sum(region.bytes for region in each) == 2 * heads * tokens * 2 for each in made)
    page = heads * layers * 2 * tokens * 2
    assert merge([region for each in made for region in each], 10) == [Region(4096, page, page)]


@pytest.mark.parametrize("given, sentence", [
    (view((4, 8, 10)), "expected 10 blocks"),
    (view((10, 10, 8)), "not in both"),
    (view((10, 4, 8), (64, 16, 2)), "not dense"),
    (view((10, 4, 8), (16, 8, 1)), "not dense|overlap"),
    (view((10, 2, 3, 8), (48, 24, 7, 1)), "not dense"),
])
def test_layouts_that_are_refused(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        regions_of("l", given, 10)


@pytest.mark.parametrize("regions", [
    [Region(0, 64, 64), Region(32, 128, 64)],  # other strides in the same memory
    [Region(0, 64, 32), Region(64 * 3 + 16, 64, 32)],  # the page of one in the page of another
    [Region(0, 64, 80)],
])
def test_pages_that_overlap_are_refused(regions):
    with pytest.raises(ValueError, match="overlap"):
        merge(regions, 10)


def test_the_page_names_every_option():
    page = Path(__file__).resolve().parents[2] / "docs" / "tiers-vllm.md"
    if not page.exists():
        pytest.skip("not in the source tree")
    text = page.read_text()
    for option in HOST + FILE + REDIS + OBJECT:
        assert f"{option.name}`" in text, f"docs/tiers-vllm.md does not name {option.name}"
