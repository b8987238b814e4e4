"""Paths by which an engine is steered, not asked: they act on everybody's requests, so no client of a gateway may use
them.

Read off SGLang 0.5.23 (entrypoints/http_server.py) and vLLM 0.32.0 (entrypoints/serve); data plus one test of a path.
"""

import re

_NAMES = frozenset(
    (
        "abort_request",
        "abort_requests",
        "add_external_corpus",
        "begin_weight_update",
        "close_session",
        "collective_rpc",
        "configure_logging",
        "continue_generation",
        "destroy_weights_update_group",
        "dump_expert_distribution_record",
        "end_weight_update",
        "finish_weight_update",
        "flush_cache",
        "freeze_gc",
        "get_weights_by_name",
        "init_weight_transfer_engine",
        "init_weights_send_group_for_remote_instance",
        "init_weights_update_group",
        "load_lora_adapter",
        "load_lora_adapter_from_tensors",
        "open_session",
        "pause",
        "pause_generation",
        "pd_role_switch",
        "release_kv_cache_memory",
        "release_memory_occupation",
        "remove_external_corpus",
        "reset_encoder_cache",
        "reset_mm_cache",
        "reset_prefix_cache",
        "resume",
        "resume_memory_occupation",
        "scale_elastic_ep",
        "send_weights_to_remote_instance",
        "set_internal_state",
        "set_trace_level",
        "shutdown_weight_transfer_engine",
        "sleep",
        "slow_down",
        "start_draft_weight_update",
        "start_expert_distribution_record",
        "start_profile",
        "start_weight_update",
        "stop_expert_distribution_record",
        "stop_profile",
        "unload_lora_adapter",
        "update_weight_version",
        "update_weights",
        "update_weights_from_disk",
        "update_weights_from_distributed",
        "update_weights_from_ipc",
        "update_weights_from_tensor",
        "wake_up",
        "weight_checker",
        "weights_checker",
    )
)
_TREES = ("dumper/", "hicache/")
_SLASHES = re.compile("/+")


def is_control(path: str) -> bool:
    """Whether a percent-decoded path steers an engine; however its slashes are written, and below `/v1`, too."""
    name = _SLASHES.sub("/", path).strip("/").removeprefix("v1/")
    return name in _NAMES or (name + "/").startswith(_TREES)
