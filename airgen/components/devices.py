"""Where torch runs: choose the device and the batch size, and release memory.

    device = check_device("cuda:1", "the model e5")
    vectors, batch = halving(lambda size: model.encode(texts, batch_size=size), 256)

torch is imported only if there may be a GPU. ROCm GPUs are also called cuda.
"""

import gc
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from airgen.components.registry import load_extra
from airgen.errors import ModelError
from airgen.safety.guard import is_out_of_memory

T = TypeVar("T")

Dtype = Literal["auto", "bf16", "fp16", "fp32"]
Devices = str | list[str] | None
"""A device, several devices that share the work, or the library's choice."""

_DRIVERS = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd", "/dev/nvhost-ctrl")  # Linux, WSL, ROCm, Jetson
_NAMES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}  # of torch and of config.json
_TORCH = {short: name for name, short in _NAMES.items()}
_MEMORY_SHARE = 0.5  # of a GPU's memory, for the weights and one batch: others may use it too, and estimates are rough
_MOST_TOKENS = 1 << 17  # tokens per batch; no GPU is faster with more
_LEAST_TOKENS = 1 << 10


def has_gpu() -> bool:
    """Return whether torch sees a GPU. Without a driver, torch is not imported."""
    if sys.platform == "darwin":
        return False
    if sys.platform == "linux" and "torch" not in sys.modules and not any(Path(path).exists() for path in _DRIVERS):
        return False
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def first_of(devices: Devices) -> str | None:
    """Return the device on which a model is loaded."""
    return devices[0] if isinstance(devices, list) else devices


def on_gpu(devices: Devices) -> bool:
    """Return whether a model with this setting runs on a GPU."""
    device = first_of(devices)
    return has_gpu() if device is None else device.startswith("cuda")


def check_device(device: str | None, subject: str) -> str:
    """Return the device, with the index of a GPU. The default is a GPU if there is one.

    Raises ModelError for a device that does not exist.
    """
    torch = load_extra("torch", subject)
    chosen = device or ("cuda" if has_gpu() else "cpu")
    if chosen == "cuda" and has_gpu():
        chosen = f"cuda:{torch.cuda.current_device()}"
    try:
        torch.zeros(1, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        if is_out_of_memory(error):
            raise
        raise ModelError(
            f"{subject}: device {chosen}: {(str(error).splitlines() or ['it is not available'])[0]}"
        ) from error
    return chosen


def dtype_name(dtype: Any) -> str:
    """Return the short name of a dtype from torch or config.json: fp32, fp16 or bf16."""
    name = str(dtype or "").removeprefix("torch.")
    return _NAMES.get(name, name)


def torch_dtype(name: str) -> Any:
    """Return the torch dtype for fp32, fp16 or bf16."""
    return getattr(load_extra("torch", "a neural model"), _TORCH[name])


def own_dtype(config: Mapping[str, Any]) -> str:
    """Return the dtype of a model's files according to its config.json. The default is fp32; it is "" if the model has
    no config or is quantised."""
    if not config or config.get("quantization_config"):
        return ""
    inner = config.get("text_config")
    dtype = config.get("dtype") or config.get("torch_dtype")
    return dtype_name(dtype) if dtype else own_dtype(inner) if isinstance(inner, dict) and inner else "fp32"


def has_bf16() -> bool:
    """Return whether the GPU computes in bf16 itself. A GPU is needed."""
    return bool(load_extra("torch", "a neural model").cuda.is_bf16_supported(including_emulation=False))


def tokens_that_fit(model: Any, length: int) -> int:
    """Estimate how many tokens fit in one batch on a GPU, from its memory, the model's sizes and the texts' length.

    The estimate is the same for all GPUs of one type, whatever else is in their memory; `halving` corrects it.
    """
    torch = load_extra("torch", "a neural model")
    weights = list(model.parameters())
    gpu = next((weight.device for weight in weights if weight.device.type == "cuda"), None)
    room = _MEMORY_SHARE * torch.cuda.get_device_properties(gpu).total_memory
    room -= sum(weight.numel() * weight.element_size() for weight in weights)
    number = max((weight.element_size() for weight in weights), default=4)
    fits = int(room / (_numbers_a_token(model, length) * number))
    return max(_LEAST_TOKENS, min(_MOST_TOKENS, fits))


def _numbers_a_token(model: Any, length: int) -> float:
    """Return an upper bound on the numbers a forward pass holds per token: states, a layer's activations, attention,
    logits."""
    configs = [part.config for part in model.modules() if hasattr(getattr(part, "config", None), "hidden_size")]
    if not configs:
        return 1 << 14
    config = configs[0]
    width = int(config.hidden_size)
    inner = int(getattr(config, "intermediate_size", 0) or 4 * width)
    heads = int(getattr(config, "num_attention_heads", 0) or width // 64)
    widest = max(
        (module.out_features for module in model.modules() if type(module).__name__ == "Linear"), default=inner
    )
    head = 4 * widest if widest > 8 * width else 0  # the logits of a language model, in fp32 too
    return 12 * width + 3 * inner + 2 * heads * length + head


def halving(work: Callable[[int], T], size: int) -> tuple[T, int]:
    """Return the result of `work` and its batch size, which is halved whenever memory runs out.

    Raises the error of `work` if it fails even with a batch size of 1.
    """
    while True:
        try:
            return work(size), size
        except Exception as error:
            if size <= 1 or not is_out_of_memory(error):
                raise
        size = max(1, size // 2)
        give_back()  # after the error is deleted, because its frames kept tensors alive


@contextmanager
def suppress_exhausted() -> Iterator[None]:
    """Suppress the error if the block runs out of memory; the caller then continues without its result."""
    exhausted = False
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        exhausted = True
    if exhausted:
        give_back()


def give_back() -> None:
    """Collect objects in reference cycles, such as libraries' models, and release the GPU's cached memory."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def gpu_name(device: str) -> str:
    """Return a device with the name of its GPU: "cuda:0 (NVIDIA H200)"."""
    if not device.startswith("cuda"):
        return device
    return f"{device} ({load_extra('torch', 'a GPU').cuda.get_device_name(device)})"


def peak_gpu_bytes(devices: Sequence[str]) -> int | None:
    """Return torch's peak memory on these GPUs since `watch_gpu`, or None if there is no GPU."""
    gpus = [device for device in devices if device.startswith("cuda")]
    return sum(load_extra("torch", "a GPU").cuda.max_memory_allocated(device) for device in gpus) if gpus else None


def watch_gpu(device: str) -> None:
    """Start measuring `peak_gpu_bytes`."""
    if device.startswith("cuda"):
        load_extra("torch", "a GPU").cuda.reset_peak_memory_stats(device)


@contextmanager
def tf32(device: str) -> Iterator[None]:
    """Allow TF32 for fp32 products on a GPU: a 10-bit mantissa, several times as fast, and precise enough for
    training."""
    if not device.startswith("cuda"):
        yield
        return
    torch = load_extra("torch", "a GPU")
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@contextmanager
def deterministic() -> Iterator[None]:
    """Make torch use only deterministic algorithms; it raises RuntimeError for an operation without one."""
    torch = load_extra("torch", "training")
    cudnn, before = torch.backends.cudnn, torch.are_deterministic_algorithms_enabled()
    settings = cudnn.deterministic, cudnn.benchmark
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used
    torch.use_deterministic_algorithms(True)
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        cudnn.deterministic, cudnn.benchmark = settings
