"""Chooses what computes: the native kernels where they run here and run the model, else torch."""

from __future__ import annotations

from collections.abc import Callable

from core.errors import SettingsError
from core.formats import Backend, WeightFormat
from core.settings import EngineSettings
from engine.forward.attention import KV_DTYPES, allocate_kv
from engine.forward.decoder import Decoder
from engine.forward.network import Network
from engine.forward.torch_network import TorchNetwork
from engine.forward.weights import allocated_bytes, load_weights
from engine.load.resolve import ResolvedEngine
from engine.machine.compiled import NATIVE_COMPILED
from engine.prepare.prepare import PreparedModel, prepare
from engine.prepare.rows import FORMATS, RowPacker

Resolve = Callable[[PreparedModel, WeightFormat], ResolvedEngine]


def load_network(
    settings: EngineSettings, resolve: Resolve, progress: Callable[[str], None]
) -> tuple[Network, PreparedModel, ResolvedEngine]:
    """Prepare the model for the backend that will run it, and load it.

    `resolve` is asked once the model's size is known.

    Raises:
        ModelError: the model cannot be read or is not supported.
        SettingsError: the backend is not there, or does not have a format that was asked for.
    """
    if settings.backend is Backend.TORCH:
        return _load_torch(settings, resolve, progress)
    if not NATIVE_COMPILED:
        if settings.backend is Backend.NATIVE:
            raise SettingsError("--backend native: the native kernels are not compiled here")
        progress("the native kernels are not compiled here: the slower torch path serves")
        return _load_torch(settings, resolve, progress)
    from kernels import Unsupported

    try:
        return _load_native(settings, resolve, progress)
    except Unsupported as error:
        if settings.backend is Backend.NATIVE:
            raise SettingsError(f"--backend native: {error}") from error
        progress(f"the native kernels do not run this model ({error}): torch serves")
        return _load_torch(settings, resolve, progress)


def _load_torch(
    settings: EngineSettings, resolve: Resolve, progress: Callable[[str], None]
) -> tuple[Network, PreparedModel, ResolvedEngine]:
    weights = settings.model.weights or WeightFormat.FP32
    if weights not in FORMATS:
        raise SettingsError(f"--weights {weights}: the torch path has {', '.join(FORMATS)} alone")
    asked = settings.model.kv_dtype
    if asked is not None and asked not in KV_DTYPES:
        raise SettingsError(f"--kv-dtype {asked}: the torch path has {', '.join(KV_DTYPES)} alone")
    prepared = prepare(settings.model, RowPacker(weights), progress)
    resolved, config = resolve(prepared, weights), prepared.config
    tensors = load_weights(prepared.dir, config)
    kv = allocate_kv(config, resolved.kv_dtype, resolved.num_blocks, resolved.block_size)
    network = TorchNetwork(Decoder(config, tensors), kv, allocated_bytes(tensors, config))
    return network, prepared, resolved


def _load_native(
    settings: EngineSettings, resolve: Resolve, progress: Callable[[str], None]
) -> tuple[Network, PreparedModel, ResolvedEngine]:
    from engine.forward.native_network import NativeNetwork
    from engine.prepare.packing import PanelPacker
    from kernels import NativeOptions

    weights = settings.model.weights or WeightFormat.NATIVE
    prepared = prepare(settings.model, PanelPacker(weights), progress)
    resolved = resolve(prepared, weights)
    network = NativeNetwork(
        prepared.config,
        load_weights(prepared.dir, prepared.config),
        prepared.storage,
        NativeOptions(
            num_blocks=resolved.num_blocks,
            block_size=resolved.block_size,
            max_tokens=resolved.max_step_tokens,
            max_positions=resolved.max_model_len,
            threads=resolved.threads,
            kv_format=resolved.kv_dtype,
        ),
    )
    return network, prepared, resolved
