"""Hugging Face's own model and generation over the very weights that we load."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from core.model import ModelConfig
from core.settings import ModelSettings
from engine.checkpoint.huggingface import hf_name
from engine.forward.weights import Weights, load_weights
from engine.prepare.prepare import PreparedModel
from tests.model.preparing import prepare_rows
from tests.model.running import Model

NEAR_TIE = 1e-3  # in logits: the one excuse for another token

TEXT = """\
The harbour woke before the town did. Gulls argued over the night's scraps, ropes creaked, and the
first boats slid out past the breakwater with their lamps still lit. Marta counted them from the
window of the customs house, as her father had done, and wrote the number 17 in a ledger that nobody
would ever read. She did not mind. Counting, she thought, was a way of paying attention, and paying
attention was most of what people called love. By 6:45 the fog had come down so thickly that the
lighthouse was only a brightness in the north. A bell rang twice. Somewhere below, a man laughed and
said that the sea keeps its own books, and that they always balance in the end. She turned a page,
sharpened her pencil, and began a new column for the ships that had not come back: three in spring,
two in summer, none at all since the new pilot started. It was, she decided, a good year so far. In
the kitchen the kettle began to sing, and the smell of bread from the bakery on Mill Street rose
through the floorboards until even the ledger seemed to smell of it. "Eat first," her father used to
say, "then count again; a hungry clerk sees double." So she closed the book and went downstairs.
"""
LENGTHS = (1, 3, 9, 17, 40, 64, 121, 200)


@dataclass(frozen=True)
class Generation:
    """Greedy tokens of the oracle, and the logits it chose them from. Shapes: [steps, V]."""

    tokens: list[int]
    logits: torch.Tensor


@dataclass
class Oracle:
    prepared: PreparedModel
    ours: Model
    theirs: LlamaForCausalLM

    @classmethod
    def of(cls, name: str) -> Oracle:
        prepared = prepare_rows(ModelSettings(model=name))
        weights = load_weights(prepared.dir, prepared.config)
        ours = Model.of(prepared.config, weights)
        return cls(prepared, ours, llama(prepared.config, weights))

    @functools.cached_property
    def prompts(self) -> list[tuple[int, ...]]:
        """Cut real text into prompts of `LENGTHS` tokens, each from another place."""
        tokenizer = Tokenizer.from_file(str(self.prepared.dir / "tokenizer.json"))
        ids = tokenizer.encode(TEXT).ids
        return [tuple(ids[5 * i : 5 * i + length]) for i, length in enumerate(LENGTHS)]

    @functools.cached_property
    def generations(self) -> dict[tuple[int, ...], Generation]:
        return {}

    @torch.inference_mode()
    def greedy(self, prompt: tuple[int, ...], steps: int) -> Generation:
        """Let transformers generate, past any end-of-sequence token; what it gave is kept."""
        known = self.generations.get(prompt)
        if known is None or len(known.tokens) < steps:
            ids = torch.tensor([prompt])
            out = self.theirs.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=steps,
                output_logits=True,
                return_dict_in_generate=True,
            )
            tokens = out.sequences[0, len(prompt) :].tolist()
            known = self.generations[prompt] = Generation(tokens, torch.cat(out.logits))
        return Generation(known.tokens[:steps], known.logits[:steps])


def llama(config: ModelConfig, weights: Weights) -> LlamaForCausalLM:
    """Build the Hugging Face model that `config` describes and put our tensors into it."""
    assert config.sliding_window == (None,) * config.num_layers
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            max_position_embeddings=config.max_position_tokens,
            rms_norm_eps=config.norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope.theta},
            tie_word_embeddings=config.tied_embeddings,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=0,
        )
    )
    tensors = {hf_name(name): tensor for name, tensor in weights.items()}
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert missing == (["lm_head.weight"] if config.tied_embeddings else [])
    return model.eval()


def explain(ours: list[int], expected: Generation) -> str | None:
    """Compare tokens. Returns: None where all are equal, else which near-tie excuses the rest.

    Raises:
        AssertionError: another token that no near-tie excuses.
    """
    assert len(ours) == len(expected.tokens)
    for step, (token, wanted) in enumerate(zip(ours, expected.tokens, strict=True)):
        if token != wanted:
            gap = (expected.logits[step, wanted] - expected.logits[step, token]).item()
            assert gap < NEAR_TIE, f"step {step}: {token} for {wanted}, {gap:.2e} below"
            return f"near-tie at step {step}: {token} for {wanted}, {gap:.2e} below"
    return None
