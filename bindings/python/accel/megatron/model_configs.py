# SPDX-License-Identifier: Apache-2.0
"""The sizes of a model under the names of Megatron's arguments, from its configuration. A program adds functions for other types of models."""

import functools
import logging
import warnings

_logger = logging.getLogger(__name__)
MODEL_CONFIGS_TO_MEGATRON_PARSERS: dict = {}  # the function of each type, of which a model's type contains the name


def add_model_config_to_megatron_parser(model_type: str):
    """A decorator: the function(plugin, model, batch) fills plugin.megatron_lm_default_args for models whose type contains this text."""
    def add(function):
        @functools.wraps(function)
        def parser(*args, **kwargs):
            return function(*args, **kwargs)

        MODEL_CONFIGS_TO_MEGATRON_PARSERS[model_type] = function
        return parser

    return add


def parse_model_config(plugin, model, batch_data):
    """Calls the function for a model's type."""
    kind = getattr(getattr(model, "config", None), "model_type", None)
    if kind is None:
        raise ValueError(f"{type(model).__name__} has no config.model_type, by which Megatron-LM's settings know a model: expected one of "
                         f"{', '.join(MODEL_CONFIGS_TO_MEGATRON_PARSERS)}, or of add_model_config_to_megatron_parser()")
    for known, parser in MODEL_CONFIGS_TO_MEGATRON_PARSERS.items():
        if known in kind.lower():
            return parser(plugin, model, batch_data)
    raise ValueError(f"Accelerate Megatron-LM integration not supports {kind.lower()} model. You can add your own model config parser: expected one of "
                     f"{', '.join(MODEL_CONFIGS_TO_MEGATRON_PARSERS)}, or a function under add_model_config_to_megatron_parser({kind.lower()!r})")


def _length(plugin, field, batch_data, key, most):
    """Gives a field of the plugin that is not set the length of the batch, else the longest that the model takes."""
    if getattr(plugin, field) is None:
        setattr(plugin, field, most if batch_data is None else batch_data[key].shape[1])


def _own_length(plugin, other, batch_data, most):
    """seq_length, for which models with one sequence also have another field."""
    if plugin.seq_length is not None and getattr(plugin, other) is not None:
        warnings.warn(f"Both `seq_length` and `{other}` are set. Using `{other}`.", stacklevel=4)
    plugin.seq_length = plugin.seq_length if getattr(plugin, other) is None else getattr(plugin, other)
    _length(plugin, "seq_length", batch_data, "input_ids", most)


def _fill(plugin, model, kind, layers, hidden, heads, most, pretraining, **others):
    config = model.config
    plugin.megatron_lm_default_args.update(
        model_type_name=kind, num_layers=layers, hidden_size=hidden, num_attention_heads=heads, max_position_embeddings=most,
        pretraining_flag=pretraining, orig_vocab_size=config.vocab_size, model_return_dict=config.return_dict, **others)


@add_model_config_to_megatron_parser("megatron-bert")
def parse_bert_config(megatron_lm_plugin, model, batch_data):
    config, plugin = model.config, megatron_lm_plugin
    _own_length(plugin, "encoder_seq_length", batch_data, config.max_position_embeddings)
    is_masked = "maskedlm" in type(model).__name__.lower()
    _fill(plugin, model, "bert", config.num_hidden_layers, config.hidden_size, config.num_attention_heads, config.max_position_embeddings, is_masked,
          seq_length=plugin.seq_length, num_labels=config.num_labels)


@add_model_config_to_megatron_parser("gpt2")
def parse_gpt2_config(megatron_lm_plugin, model, batch_data):
    config, plugin = model.config, megatron_lm_plugin
    _own_length(plugin, "decoder_seq_length", batch_data, config.n_positions)
    _fill(plugin, model, "gpt", config.n_layer, config.n_embd, config.n_head, config.n_positions, True, seq_length=plugin.seq_length,
          return_logits=plugin.return_logits, tokenizer_type="GPT2BPETokenizer")


@add_model_config_to_megatron_parser("t5")
def parse_t5_config(megatron_lm_plugin, model, batch_data):
    config, plugin = model.config, megatron_lm_plugin
    most = getattr(config, "n_positions", 1024)
    _length(plugin, "encoder_seq_length", batch_data, "input_ids", most)
    _length(plugin, "decoder_seq_length", batch_data, "labels", most)
    _fill(plugin, model, "t5", config.num_layers, config.d_model, config.num_heads, most, True, encoder_seq_length=plugin.encoder_seq_length,
          decoder_seq_length=plugin.decoder_seq_length)


def _decoder_length(plugin, config, batch_data):
    if plugin.seq_length is None:
        plugin.seq_length = getattr(config, "max_sequence_length", None) or plugin.decoder_seq_length
    _length(plugin, "seq_length", batch_data, "input_ids", config.max_position_embeddings)
    return plugin.seq_length


@add_model_config_to_megatron_parser("llama")
def parse_llama_config(megatron_lm_plugin, model, batch_data):
    config, plugin = model.config, megatron_lm_plugin
    length = _decoder_length(plugin, config, batch_data)
    _fill(plugin, model, "gpt", config.num_hidden_layers, config.hidden_size, config.num_attention_heads, config.max_position_embeddings, True,
          seq_length=length, return_logits=plugin.return_logits, tokenizer_type="Llama2Tokenizer")


@add_model_config_to_megatron_parser("glm4_moe")
def parse_glm4_moe_config(megatron_lm_plugin, model, batch_data):
    config, plugin = model.config, megatron_lm_plugin
    length = _decoder_length(plugin, config, batch_data)
    _fill(plugin, model, "gpt", config.num_hidden_layers, config.hidden_size, config.num_attention_heads, config.max_position_embeddings, False,
          seq_length=length, return_logits=plugin.return_logits, tokenizer_type="HuggingFaceTokenizer", kv_channels=config.head_dim,
          position_embedding_type="rope", original_model_type=config.model_type, qk_layernorm=config.use_qk_norm, add_bias_linear=False,
          group_query_attention=True, num_query_groups=config.num_key_value_heads, ffn_hidden_size=config.intermediate_size, add_qkv_bias=True,
          normalization="RMSNorm", swiglu=True, moe_ffn_hidden_size=config.moe_intermediate_size,
          moe_shared_expert_intermediate_size=config.moe_intermediate_size, moe_router_pre_softmax=True, moe_router_score_function="sigmoid",
          moe_router_enable_expert_bias=True, moe_router_bias_update_rate=0, moe_router_load_balancing_type="seq_aux_loss",
          moe_token_dispatcher_type="alltoall", moe_router_topk=config.num_experts_per_tok,
          moe_router_topk_scaling_factor=config.routed_scaling_factor,
          moe_layer_freq=[0] * config.first_k_dense_replace + [1] * (config.num_hidden_layers - config.first_k_dense_replace),
          num_experts=config.n_routed_experts, moe_grouped_gemm=True, moe_router_dtype="fp32", moe_permute_fusion=True, moe_aux_loss_coeff=0,
          rotary_base=config.rope_theta, rope_type="rope", rotary_percent=config.partial_rotary_factor, norm_epsilon=1e-3, use_flash_attn=True,
          eos_token_id=config.eos_token_id, bf16=config.bf16, untie_embeddings_and_output_weights=not config.tie_word_embeddings,
          **{"rotary-percent": 0.5})
    if getattr(config, "fp8_param", False):
        plugin.megatron_lm_default_args.update({name: getattr(config, name) for name in ("fp8", "fp8_param", "fp8_param_gather", "fp8_recipe")})
    _logger.info("glm4_moe: %s", plugin.megatron_lm_default_args)
