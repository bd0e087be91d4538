"""From a model's config.json to its layers, and from these and memory to a plan."""

import difflib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _core

_LAYER_TYPES = {"full_attention": 1, "sliding_attention": 2, "chunked_attention": 3,
                "linear_attention": 4}

# Fields that some families name differently: theirs, and the library's.
_NEMOTRON = {"ssm_state_size": "mamba_d_state", "conv_kernel": "mamba_d_conv",
             "mamba_num_heads": "mamba_n_heads", "mamba_head_dim": "mamba_d_head",
             "n_groups": "mamba_n_groups", "chunk_size": "mamba_chunk_size"}

_FIELDS = frozenset("""
    model_type torch_dtype num_hidden_layers hidden_size num_attention_heads num_key_value_heads
    head_dim max_position_embeddings sliding_window use_sliding_window max_window_layers layer_types
    sliding_window_pattern attention_chunk_size no_rope_layer_interval no_rope_layers kv_lora_rank
    qk_rope_head_dim index_head_dim attn_layer_period attn_layer_offset attn_layer_indices
    hybrid_override_pattern mamba_expand mamba_d_state mamba_d_conv mamba_n_heads mamba_d_head
    mamba_n_groups mamba_chunk_size full_attention_interval linear_num_key_heads
    linear_num_value_heads linear_key_head_dim linear_value_head_dim linear_conv_kernel_dim
    decoder_layers decoder_attention_heads d_model""".split())


def _text_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the text model, by the library's names; others are left out."""
    fields = dict(config)
    if isinstance(fields.get("text_config"), Mapping):
        fields = {"model_type": fields.get("model_type"), **fields["text_config"]}
    if "torch_dtype" not in fields and fields.get("dtype") is not None:
        fields["torch_dtype"] = fields["dtype"]
    if fields.get("model_type") == "nemotron_h":
        for theirs, ours in _NEMOTRON.items():
            if theirs in fields:
                fields[ours] = fields[theirs]
    fields = {name: fields[name] for name in _FIELDS if fields.get(name) is not None}
    if "layer_types" in fields:
        fields["layer_types"] = [_layer_type(t) for t in fields["layer_types"]]
    return fields


def _layer_type(name: str | int) -> int:
    if name in _LAYER_TYPES.values():  # as the presets have them
        return name
    try:
        return _LAYER_TYPES[name]
    except (KeyError, TypeError):
        raise ValueError(f"layer_types: there is no {name!r}") from None


Model = Mapping[str, Any] | str | os.PathLike


def _config_of(model: Model) -> Mapping[str, Any]:
    """A config.json as it is, that of a preset, or that of a file or a folder with one."""
    if isinstance(model, Mapping):
        return model
    if not isinstance(model, (str, os.PathLike)):
        raise TypeError(f"model must be a dict (a config.json), the name of a preset or the path of "
                        f"a config.json, not {type(model).__name__}")
    presets = _core._model_presets()
    if model in presets:
        return presets[model]
    path = Path(model)
    path = path / "config.json" if path.is_dir() else path
    if not path.exists():
        near = difflib.get_close_matches(str(model), presets, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"presets: {', '.join(presets)}"
        raise ValueError(f"model: {str(model)!r} is neither a preset nor a file; {hint}")
    try:
        config = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"model: {path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"model: {path} is not a config.json: no object at its top")
    return config


def model_layers(model: Model, **engine: Any) -> list[dict[str, Any]]:
    """The layers that vLLM 0.20.0 would make of a model, as dicts for Plan.

    model: a config.json as a dict, its path (or the folder's), or the name of a preset, as
    "llama-3.1-8b". engine: block_size, cache_dtype, tensor_parallel_size, max_model_len, mamba_mode,
    mamba_block_size, mamba_ssm_dtype, num_speculative_tokens, kernel_block_size.
    """
    return _core.model_layers({**_text_fields(_config_of(model)), **engine})


_ENGINE = frozenset("""block_size cache_dtype tensor_parallel_size mamba_mode mamba_block_size
    mamba_ssm_dtype num_speculative_tokens kernel_block_size""".split())


def plan(model: Model, memory_bytes: int | Sequence[int], *,
         max_model_len: int | None = None, **settings: Any) -> _core.Plan:
    """A Plan of a model (as model_layers takes it) in so many bytes of KV cache.

    memory_bytes is one number, or a list with one for each worker. settings are those of
    model_layers and of Plan; max_model_len is the model's own if it is not given.
    """
    config = _config_of(model)
    if max_model_len is None:
        max_model_len = _text_fields(config).get("max_position_embeddings")
    engine = {name: settings.pop(name) for name in _ENGINE & settings.keys()}
    layers = model_layers(config, max_model_len=max_model_len, **engine)
    return _core.Plan(layers, memory_bytes, max_model_len=max_model_len, **settings)
