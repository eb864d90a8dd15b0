"""Stand-in of an NVIDIA GPU: torch's answers about CUDA, and tensors on `cuda` that are the CPU's.

Nothing of Unsloth, Triton, PEFT, Transformers or Hearth is replaced. Triton's own interpreter
computes Unsloth's kernels (TRITON_INTERPRET=1). It shows no compiled kernels, speed, memory, NCCL.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import types
from collections.abc import Callable
from typing import Any

MEMORY = 8 << 30
"""Bytes of memory that each card claims to have; nine tenths of them are free."""

_FACTORIES = """empty zeros ones full rand randn randint arange tensor as_tensor linspace eye
    empty_like zeros_like ones_like full_like rand_like randn_like randperm empty_strided logspace
    scalar_tensor asarray"""
_METHODS = "new_empty new_zeros new_ones new_full new_tensor new_empty_strided"


def install(torch: Any, cards: list[tuple[int, int]]) -> None:
    """Give `torch` one NVIDIA GPU for each compute capability in `cards`."""
    # `with torch.device("meta")` compares with the plain factories: have them collected before.
    importlib.import_module("torch.utils._device")._device_constructors()
    # Unsloth would run ldconfig as root, because there is no libcuda.
    os.geteuid = lambda: 1000
    _answer(torch, cards)
    _move(torch)
    _cast(torch)
    _exchange(torch)


def _names_cuda(torch: Any, value: Any) -> bool:
    if isinstance(value, str):
        return value.startswith("cuda")
    return isinstance(value, torch.device) and value.type == "cuda"


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Nothing(contextlib.AbstractContextManager[Any]):
    """A stream or an event: everything on the CPU is done when the call returns."""

    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass

    def _done(self, *_: Any, **__: Any) -> None:
        pass

    record = wait = wait_stream = wait_event = record_event = synchronize = _done

    def query(self) -> bool:
        """Return that the work is done."""
        return True

    def elapsed_time(self, _: Any) -> float:
        """Return a time that is not zero, in milliseconds."""
        return 1.0


def _answer(torch: Any, cards: list[tuple[int, int]]) -> None:
    """Replace what torch.cuda answers."""
    current = [0]

    def index_of(device: Any = None) -> int:
        index = device if device is None or _is_index(device) else torch.device(device).index
        return current[0] if index is None or index < 0 else index

    def properties(device: Any = None) -> types.SimpleNamespace:
        index = index_of(device)
        major, minor = cards[index]
        return types.SimpleNamespace(
            name=f"Stand-in GPU {major}.{minor}", major=major, minor=minor, total_memory=MEMORY,
            uuid=f"GPU-stand-in-{index}", multi_processor_count=36, warp_size=32,
            regs_per_multiprocessor=65536, max_threads_per_multi_processor=1536,
            shared_memory_per_block=49152, shared_memory_per_block_optin=101376,
            shared_memory_per_multiprocessor=102400, L2_cache_size=32 << 20, is_integrated=0,
            is_multi_gpu_board=0, gcnArchName="", pci_bus_id=1, pci_device_id=index,
            pci_domain_id=0,
        )  # fmt: skip

    class Device(contextlib.AbstractContextManager[Any]):
        def __init__(self, device: Any) -> None:
            on_cuda = _is_index(device) or _names_cuda(torch, device)
            self.idx = index_of(device) if on_cuda else current[0]

        def __enter__(self) -> Device:
            self.before, current[0] = current[0], self.idx
            return self

        def __exit__(self, *_: Any) -> None:
            current[0] = self.before

    def set_device(device: Any) -> None:
        current[0] = index_of(device)

    def is_bf16_supported(including_emulation: bool = True) -> bool:
        return cards[current[0]][0] >= 8 or including_emulation

    def own(answer: Callable[..., Any]) -> Callable[..., Any]:
        # Dynamo wants a function of its own behind each name.
        return lambda *args, **kwargs: answer(*args, **kwargs)

    def none(*_: Any, **__: Any) -> None:
        pass

    def zero(*_: Any, **__: Any) -> int:
        return 0

    nothing_done = """init _lazy_init reset_peak_memory_stats empty_cache synchronize set_stream
        ipc_collect manual_seed manual_seed_all"""
    nothing_used = """memory_allocated max_memory_allocated memory_reserved max_memory_reserved
        utilization"""
    answers: dict[str, Callable[..., Any]] = {
        **dict.fromkeys(nothing_done.split(), none),
        **dict.fromkeys(nothing_used.split(), zero),
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: len(cards),
        "current_device": lambda: current[0],
        "set_device": set_device,
        "get_device_capability": lambda device=None: cards[index_of(device)],
        "get_device_name": lambda device=None: properties(device).name,
        "get_device_properties": properties,
        "mem_get_info": lambda device=None: (MEMORY * 9 // 10, MEMORY),
        "host_memory_stats": lambda: {"allocated_bytes.current": 0},
        "memory_stats": lambda device=None: {},
        "stream": lambda stream: contextlib.nullcontext(),
        "device_of": lambda tensor: contextlib.nullcontext(),
        "current_stream": Nothing,
        "default_stream": Nothing,
        "is_current_stream_capturing": lambda: False,
        "can_device_access_peer": lambda *_: False,
        "get_allocator_backend": lambda: "native",
        "get_arch_list": lambda: [f"sm_{major}{minor}" for major, minor in cards],
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state()] * len(cards),
        "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
        "temperature": lambda device=None: 60,
    }
    for name, answer in answers.items():
        for module in (torch.cuda, torch.cuda.memory):
            if module is torch.cuda or hasattr(module, name):
                setattr(module, name, own(answer))
    torch.cuda.is_bf16_supported = is_bf16_supported  # Unsloth inspects its signature
    torch.cuda.device, torch.cuda.Event, torch.cuda.Stream = Device, Nothing, Nothing
    torch.cuda.nccl.version = lambda: (2, 29, 7)
    torch.version.cuda = "13.0"
    torch.backends.cuda.is_built = lambda: True
    torch._C._cuda_getCurrentRawStream = lambda index=0: 0
    torch._C._cuda_getDeviceCount = lambda: len(cards)


def _move(torch: Any) -> None:
    """Let everything that is to be made on CUDA, or moved there, be the CPU's."""
    cpu, plain_device = torch.device("cpu"), torch.device
    first = plain_device("cpu", 0)

    class Meta(type):
        # Unsloth asks for `torch.device(tensor.device.index)`, and a CPU tensor has no index.
        def __instancecheck__(cls, other: Any) -> bool:
            return isinstance(other, plain_device)

        def __subclasscheck__(cls, other: Any) -> bool:
            return issubclass(other, plain_device)

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            if len(args) == 1 and not kwargs and (args[0] is None or type(args[0]) is int):
                return first
            return plain_device(*args, **kwargs)

    class device(metaclass=Meta):
        pass

    torch.device = device

    def swap(value: Any) -> Any:
        return cpu if _names_cuda(torch, value) else value

    def swapping(function: Callable[..., Any], index_first: bool = False) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            kwargs.pop("pin_memory", None)
            if "device" in kwargs:
                wanted = kwargs["device"]
                kwargs["device"] = cpu if _is_index(wanted) else swap(wanted)
            words = [swap(value) for value in args]
            if index_first and len(words) > 1 and _is_index(words[1]):
                words[1] = cpu
            return function(*words, **kwargs)

        return wrapper

    tensor, module = torch.Tensor, torch.nn.Module
    for name in _FACTORIES.split():
        setattr(torch, name, swapping(getattr(torch, name)))
    for name in _METHODS.split():
        setattr(tensor, name, swapping(getattr(tensor, name)))
    for kind in (tensor, module):
        kind.to = swapping(kind.to, index_first=True)
    plain = torch._C.TensorBase.device

    def place(self: Any) -> Any:  # Unsloth keeps its tables by `tensor.device.index`
        found = plain.__get__(self)
        return first if found == cpu else found

    def itself(self: Any, *_: Any, **__: Any) -> Any:
        return self

    tensor.device = property(place)
    tensor.cuda = tensor.pin_memory = module.cuda = torch.UntypedStorage.cuda = itself
    tensor.record_stream = lambda *_: None
    plain_load = torch.load

    def load(*args: Any, **kwargs: Any) -> Any:
        return plain_load(*args, **kwargs | {"map_location": swap(kwargs.get("map_location"))})

    torch.load = load
    plain_generator = torch.Generator

    class Generator(plain_generator):  # type: ignore[misc,valid-type]
        def __new__(cls, device: Any = "cpu") -> Any:
            return plain_generator.__new__(cls, swap(device))

    torch.Generator = Generator


def _cast(torch: Any) -> None:
    """Let autocast and the loss scaler of CUDA be those of the CPU."""

    def on_cpu(value: Any) -> Any:
        return "cpu" if value == "cuda" else value

    def mapped(plain: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            named = {name: on_cpu(value) for name, value in kwargs.items()}
            return plain(*map(on_cpu, args), **named)

        return wrapper

    def begun(plain: Callable[..., Any]) -> Callable[..., Any]:
        def begin(self: Any, device: Any = "cuda", *args: Any, **kwargs: Any) -> None:
            plain(self, on_cpu(kwargs.pop("device_type", device)), *args, **kwargs)

        return begin

    for kind in (torch.autocast, torch.amp.GradScaler):
        kind.__init__ = begun(kind.__init__)
    for name in ("get_autocast_dtype", "set_autocast_enabled", "set_autocast_dtype"):
        setattr(torch, name, mapped(getattr(torch, name)))
    plain_enabled = torch.is_autocast_enabled
    torch.is_autocast_enabled = lambda device="cuda": plain_enabled(on_cpu(device))
    torch.get_autocast_gpu_dtype = lambda: torch.get_autocast_dtype("cpu")


def _exchange(torch: Any) -> None:
    """Let a process group of NCCL be one of gloo, and say so."""
    plain = torch.distributed.new_group

    def new_group(*args: Any, backend: str | None = None, **kwargs: Any) -> Any:
        if backend == "nccl":
            print("stand-in GPU: gloo stands in for NCCL", flush=True)
            backend = "gloo"
        return plain(*args, backend=backend, **kwargs)

    torch.distributed.new_group = new_group
