"""What some configurations need beside the model `tiny`: a tokenizer, layers with a window, adapters.

All of it is made up on the spot, in a folder that goes away.
"""
import json
from pathlib import Path

VOCABULARY = 512
GRAMMARS = {
    "json": {"json": {"type": "object", "properties": {"a": {"type": "integer"},
                                                       "b": {"enum": ["x", "yy"]}},
                      "required": ["a", "b"], "additionalProperties": False}},
    "regex": {"regex": "[a-c]{3,12}[0-9]{2}"},
    "choice": {"choice": ["yes", "no", "perhaps"]},
}


def tokenizer(folder: Path) -> None:
    """One token for each byte."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    names += [f"<unused{i}>" for i in range(VOCABULARY - len(names))]
    made = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(name, special=True) for name in names[:2]])
    PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>",
                            pad_token="</s>").save_pretrained(folder)


def prepare(model: str, scratch: str, needs: str) -> str:
    """The folder of a model like the given one, with what is asked for."""
    if needs not in ("tokenizer", "window"):
        return model
    folder = Path(scratch) / needs
    folder.mkdir()
    config = json.loads((Path(model) / "config.json").read_text())
    if needs == "window":  # every second layer sees 64 tokens
        config.update(architectures=["Gemma2ForCausalLM"], model_type="gemma2", sliding_window=64,
                      num_hidden_layers=4, attn_logit_softcapping=None, query_pre_attn_scalar=64,
                      final_logit_softcapping=None, hidden_activation="gelu_pytorch_tanh",
                      layer_types=["sliding_attention", "full_attention"] * 2)
        config.pop("hidden_act")
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer(folder)
    return str(folder)


def adapter(scratch: str, number: int) -> str:
    """A LoRA adapter of rank 8 for all attention outputs of `tiny`."""
    import torch
    from safetensors.torch import save_file

    folder = Path(scratch) / f"adapter{number}"
    if not folder.exists():
        folder.mkdir()
        (folder / "adapter_config.json").write_text(json.dumps(
            {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["o_proj"],
             "bias": "none", "task_type": "CAUSAL_LM", "base_model_name_or_path": "tiny"}))
        generator = torch.Generator().manual_seed(number)
        weights = {}
        for layer in range(2):
            name = f"base_model.model.model.layers.{layer}.self_attn.o_proj"
            weights[f"{name}.lora_A.weight"] = torch.randn(8, 256, generator=generator) * 0.2
            weights[f"{name}.lora_B.weight"] = torch.randn(128, 8, generator=generator) * 0.2
        save_file(weights, str(folder / "adapter_model.safetensors"))
    return str(folder)
