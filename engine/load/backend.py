"""Chooses what computes: the native kernels where they run here and run the model, else torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from core.errors import SettingsError
from core.formats import Backend, KVFormat, MatrixFormat, WeightFormat
from core.settings import EngineSettings
from costmodel.storage import weight_bytes
from engine.forward.attention import KV_DTYPES, allocate_kv
from engine.forward.decoder import Decoder
from engine.forward.network import Network
from engine.forward.torch_network import TorchNetwork
from engine.forward.weights import allocated_bytes, load_weights
from engine.load.limits import resolve_max_model_len, resolve_num_blocks
from engine.machine.compiled import NATIVE_COMPILED
from engine.machine.memory import least_room
from engine.prepare.prepare import PreparedModel, prepare
from engine.prepare.rows import FORMATS, RowPacker
from scheduler.pace import step_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A prepared model, and what the settings come to for it."""

    prepared: PreparedModel
    kv_dtype: KVFormat
    num_blocks: int
    max_model_len: int

    @classmethod
    def of(cls, settings: EngineSettings, prepared: PreparedModel) -> Sizes:
        config, limit = prepared.config, settings.model.max_model_len
        kv_dtype = settings.model.kv_dtype or prepared.storage.usual_kv
        weights = sum(weight_bytes(config, prepared.storage).values())
        num_blocks = resolve_num_blocks(settings.kv, config, kv_dtype, weights, least_room())
        pool_tokens = num_blocks * settings.kv.block_size
        return cls(
            prepared=prepared,
            kv_dtype=kv_dtype,
            num_blocks=num_blocks,
            max_model_len=resolve_max_model_len(limit, config, pool_tokens),
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """A network, the weights' format that was asked for or chosen, and the sizes."""

    network: Network
    weights: WeightFormat
    sizes: Sizes

    @property
    def arithmetic(self) -> str:
        """Name the fastest arithmetic that its products use: what its peak is measured in."""
        formats = self.sizes.prepared.storage.formats
        if MatrixFormat.INT4_G32 in formats:
            return "int4"
        return "int8" if formats & {MatrixFormat.INT8, MatrixFormat.INT8_G32} else "fp32"


def load_network(settings: EngineSettings, threads: int, progress: Callable[[str], None]) -> Loaded:
    """Prepare the model for the backend that will run it, and load it.

    Raises:
        ModelError: the model cannot be read or is not supported.
        SettingsError: the backend is not there, or does not have a format that was asked for.
    """
    if settings.backend is Backend.TORCH:
        return _load_torch(settings, progress)
    if not NATIVE_COMPILED:
        if settings.backend is Backend.NATIVE:
            raise SettingsError("--backend native: the native kernels are not compiled here")
        progress("the native kernels are not compiled here: the slower torch path serves")
        return _load_torch(settings, progress)
    from kernels import Unsupported

    try:
        return _load_native(settings, threads, progress)
    except Unsupported as error:
        if settings.backend is Backend.NATIVE:
            raise SettingsError(f"--backend native: {error}") from error
        progress(f"the native kernels do not run this model ({error}): torch serves")
        return _load_torch(settings, progress)


def _load_torch(settings: EngineSettings, progress: Callable[[str], None]) -> Loaded:
    weights = settings.model.weights or WeightFormat.FP32
    if weights not in FORMATS:
        raise SettingsError(f"--weights {weights}: the torch path has {', '.join(FORMATS)} alone")
    asked = settings.model.kv_dtype
    if asked is not None and asked not in KV_DTYPES:
        raise SettingsError(f"--kv-dtype {asked}: the torch path has {', '.join(KV_DTYPES)} alone")
    sizes = Sizes.of(settings, prepare(settings.model, RowPacker(weights), progress))
    config = sizes.prepared.config
    tensors = load_weights(sizes.prepared.dir, config)
    kv = allocate_kv(config, sizes.kv_dtype, sizes.num_blocks, settings.kv.block_size)
    network = TorchNetwork(Decoder(config, tensors), kv, allocated_bytes(tensors, config))
    return Loaded(network, weights, sizes)


def _load_native(settings: EngineSettings, threads: int, progress: Callable[[str], None]) -> Loaded:
    from engine.forward.native_network import NativeNetwork, NativeSizes
    from engine.prepare.packing import PanelPacker

    weights = settings.model.weights or WeightFormat.NATIVE
    sizes = Sizes.of(settings, prepare(settings.model, PanelPacker(weights), progress))
    prepared = sizes.prepared
    network = NativeNetwork(
        prepared.config,
        load_weights(prepared.dir, prepared.config),
        prepared.storage,
        sizes.kv_dtype,
        NativeSizes(
            num_blocks=sizes.num_blocks,
            block_size=settings.kv.block_size,
            max_tokens=step_limit(settings.scheduler),
            max_positions=sizes.max_model_len,
            threads=threads,
        ),
    )
    return Loaded(network, weights, sizes)
