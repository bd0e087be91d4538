"""Mixes of schedulers of vLLM 0.32 with what few engines have (record.py sched --mixes extra).

They are a table of their own, so that the seeds of the other mixes draw what they always drew.
"""
from part_mixes import ANY as PARTS_ANY
from part_mixes import PLAIN as PARTS
from sched_mixes import (ASYNC, DEEP, EAGLE, FULL, HYBRID, IMAGES, LATER, NGRAM, TIGHT, WINDOW)

MODULES = {"spec": (2, 4), "eagle": True, "modules": True}
FENCES = {"fences": True, "sends": 0.4}
# Loads fail in part, and the request computes the rest itself.
FAILS = {"failures": 0.25, "fails": False}

ZEROING = {**LATER, "zeroing": True}
FREES = {**LATER, **TIGHT, "pending_frees": True}
NO_DROP = {"no_block_drop": True}
ENCODER = {"images": 0.7, "caching": False, "spec": (0, 0), "sessions": 0.0, "grammars": 0.0,
           "connector": False, "encoder_only": True}
ITEMS = {**IMAGES, **LATER, "encoder_connector": True}
STATES = {**LATER, "takes_states": True}

# name: settings that are not drawn; hits end inside a block where it begins with "parts"
SCHED = {
    "zeroing": {**FULL, **ZEROING, **FAILS},
    "zeroing-async": {**FULL, **ZEROING, **FAILS, **ASYNC},
    "zeroing-window": {**WINDOW, **ZEROING, **FAILS},
    "zeroing-losses": {**HYBRID, **ZEROING, "losses": 0.3},
    "frees": {**FULL, **FREES},
    "frees-fences": {**HYBRID, **FREES, **ASYNC, "fences": True},
    "frees-priority": {**FULL, **FREES, **ASYNC, "priority": True},
    "no-drop": {**FULL, **EAGLE, **NO_DROP},
    "no-drop-hybrid": {**HYBRID, **EAGLE, **ASYNC, "images": 0.4, **NO_DROP},
    "no-drop-modules": {**FULL, **MODULES, **NO_DROP},
    "encoder-only": {**FULL, **ENCODER, "is_async": False, "pooling": 0.0},
    "encoder-only-async": {**FULL, **ENCODER, **ASYNC, "images": 0.9, "pooling": 0.1,
                           "chunked": False},
    "items": {**ITEMS},
    "items-async": {**ITEMS, **ASYNC},
    "items-album": {**ITEMS, **TIGHT, "images": 0.9, "album": True},
    "items-eagle": {**ITEMS, **EAGLE},
    "items-modules": {**ITEMS, **ASYNC, **MODULES},
    "items-priority": {**ITEMS, **TIGHT, "priority": True},
    "items-sessions": {**ITEMS, "sessions": 0.5},
    "items-fences": {**ITEMS, **DEEP, **TIGHT, **FENCES},
    "parts-states-told": {**PARTS, **STATES},
    "parts-states-any": {**PARTS_ANY, **STATES},
    "parts-states-async": {**PARTS_ANY, **STATES, **ASYNC, "sends": 0.4},
    "parts-states-fences": {**PARTS, **STATES, **DEEP, **TIGHT, **FENCES},
    "parts-states-eagle": {**PARTS_ANY, **STATES, **ASYNC, **EAGLE},
    "parts-states-ngram": {**PARTS_ANY, **STATES, **NGRAM, **TIGHT},
    "parts-no-drop": {**PARTS_ANY, **EAGLE, **NO_DROP},
    "parts-frees": {**PARTS, **FREES, **DEEP, "fences": True},
    "parts-encoder-only": {**PARTS_ANY, **ENCODER, "images": 0.5, "is_async": False,
                           "pooling": 0.0},
    "parts-items": {**PARTS, **ITEMS, "images": 0.6},
}
