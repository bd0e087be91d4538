"""Where the pages of blocks lie in vLLM's tensors, by their strides alone.

    region     (base, stride, bytes): the page of block b is [base + b * stride, + bytes)

    (2, blocks, ...)        K and V apart: two regions
    (blocks, 2, ...)        one region
    packed, [block][layer]  regions of one stride, side by side: they become one

A tensor is a view: its dimensions may lie in memory in any order. The dimensions of a block that are
dense are one region; each of the others has that many regions. Groups that share memory have the same
regions.
What is not understood is refused: a wrong guess would be another request's tokens.
"""
from itertools import product
from typing import NamedTuple

from .options import refuse


class Region(NamedTuple):
    base: int
    stride: int
    bytes: int


class View(NamedTuple):
    """A tensor: an address, and (size, stride) of each dimension, in elements."""

    pointer: int
    element: int
    dims: tuple[tuple[int, int], ...]

    @staticmethod
    def of(tensor) -> "View":
        return View(tensor.data_ptr(), tensor.element_size(),
                    tuple(zip(tensor.shape, tensor.stride())))


def block_dimension(name: str, view: View, num_blocks: int) -> int:
    """vLLM's first or second dimension counts blocks; a block may be several blocks of the kernel."""
    found = [d for d in range(min(2, len(view.dims)))
             if view.dims[d][0] >= num_blocks and view.dims[d][0] % num_blocks == 0]
    if len(found) != 1:
        refuse(f"layer {name}: the KV cache has shape {[size for size, _ in view.dims]}; expected "
               f"{num_blocks} blocks in its first or second dimension, and not in both")
    return found[0]


def regions_of(name: str, view: View, num_blocks: int) -> list[Region]:
    """The regions of one tensor."""
    dim = block_dimension(name, view, num_blocks)
    count, block_stride = view.dims[dim]
    others = [d for i, d in enumerate(view.dims) if i != dim and d[0] > 1]
    inner = sorted((d for d in others if d[1] < block_stride), key=lambda d: d[1])
    outer = [d for d in others if d[1] >= block_stride]
    dense = 1
    for i, (size, stride) in enumerate(inner):
        if stride < dense or (i == 0 and stride != 1):
            refuse(f"layer {name}: the elements of a block overlap, or are not dense (shape and strides "
                   f"{list(view.dims)})")
        if stride > dense:  # other layers' elements lie between
            outer, inner = inner[i:] + outer, inner[:i]
            break
        dense *= size
    parts = count // num_blocks
    if dense > block_stride:
        refuse(f"layer {name}: blocks overlap (shape and strides {list(view.dims)})")
    whole = parts * dense if dense == block_stride else dense  # parts that follow each other are one
    starts = [0] if dense == block_stride else [i * block_stride for i in range(parts)]
    made = []
    for index in product(*(range(size) for size, _ in outer)):
        offset = sum(i * stride for i, (_, stride) in zip(index, outer))
        made.extend(Region(view.pointer + (offset + start) * view.element,
                           parts * block_stride * view.element, whole * view.element)
                    for start in starts)
    return made


def span(region: Region, num_blocks: int) -> tuple[int, int]:
    return region.base, region.base + (num_blocks - 1) * region.stride + region.bytes


def merge(regions: list[Region], num_blocks: int) -> list[Region]:
    """Each byte of a block once: regions that are equal, overlap or follow each other become one."""
    made: list[Region] = []
    for region in sorted(set(regions)):
        last = made[-1] if made else None
        if last is not None and last.stride == region.stride and region.base <= last.base + last.bytes:
            end = max(last.base + last.bytes, region.base + region.bytes)
            made[-1] = Region(last.base, last.stride, end - last.base)
        else:
            made.append(region)
    check_apart(made, num_blocks)
    return made


def check_apart(regions: list[Region], num_blocks: int) -> None:
    """No two blocks share a byte."""
    for region in regions:
        if region.bytes > region.stride:
            refuse(f"pages of {region.bytes} bytes at a distance of {region.stride} overlap")
    ordered = sorted(regions)
    for i, first in enumerate(ordered):
        end = span(first, num_blocks)[1]
        for second in ordered[i + 1:]:
            if second.base >= end:
                break
            distance = (second.base - first.base) % first.stride
            if (first.stride != second.stride or distance < first.bytes
                    or distance + second.bytes > first.stride):
                refuse(f"the pages of two tensors overlap: {tuple(first)} and {tuple(second)} "
                       "(base, stride, bytes)")


def spec_of(group, name: str):
    """The spec of one layer: groups of layers that differ have one for each."""
    spec = group.kv_cache_spec
    return getattr(spec, "kv_cache_specs", {}).get(name, spec)


def all_regions(kv_caches: dict, kv_cache_config) -> list[Region]:
    """The regions of a rank, in the order of their addresses."""
    num_blocks = kv_cache_config.num_blocks
    specs = {name: spec_of(group, name) for group in kv_cache_config.kv_cache_groups
             for name in group.layer_names}
    found = []
    for name, tensor in kv_caches.items():
        if isinstance(tensor, (list, tuple)):
            refuse(f"layer {name} has several tensors (states of Mamba?), which is not supported")
        made = regions_of(name, View.of(tensor), num_blocks)
        check_page(name, specs.get(name), made)
        found.extend(made)
    if not found:
        refuse("vLLM registered no KV cache")
    return merge(found, num_blocks)


def check_page(name: str, spec, regions: list[Region]) -> None:
    """The regions of a layer are its page, less what vLLM pads."""
    total = sum(region.bytes for region in regions)
    if spec is None:
        return  # a layer that shares another's cache
    page = getattr(spec, "real_page_size_bytes", None) or spec.page_size_bytes
    if total != page and total != spec.page_size_bytes:
        refuse(f"layer {name}: its tensor has {total} bytes a block, and vLLM's plan {page}")
