"""What the scripts of this folder share: arguments, device times, energy, JSON lines.

torch is imported when a measurement starts, so that `--dry-run` checks arguments without it.
"""

import argparse
import ctypes
import json
import math
import platform
import statistics
import sys
import time

# Energy is taken over at least this time, because NVML updates its counter slowly.
ENERGY_SECONDS = 3.0


def parser(description):
    """Returns a parser with the arguments of every script."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--samples", type=int, default=20, help="timed runs of a case")
    made.add_argument("--dry-run", action="store_true", help="check the arguments and exit")
    return made


def list_of(item):
    """Returns a type of argument: `item`s, separated by commas."""

    def values(text):
        return [item(part) for part in text.split(",")]

    return values


def sizes(count):
    """Returns a type of argument: `count` numbers, separated by `x`."""

    def size(text):
        numbers = [int(part) for part in text.split("x")]
        if len(numbers) != count or min(numbers) < 1:
            raise argparse.ArgumentTypeError(f"`{text}` is not {count} numbers, as in 4x512")
        return numbers

    return size


def generation_arguments(description, option, variants):
    """Returns the arguments of a script that generates text.

    `option` names the argument with the tokens of the prompt and the capacity of the cache.
    """
    made = parser(description)
    for name in ("layers", "hidden", "intermediate", "heads", "kv-heads", "vocab"):
        made.add_argument(f"--{name}", type=int, required=True)
    made.add_argument(f"--{option}", dest="size", type=sizes(2), required=True, help="tokens of the prompt x capacity")
    made.add_argument("--batch", type=int, default=1, help="sequences, all with prompts of this length")
    made.add_argument("--dtype", choices=("f32", "bf16"), default="bf16", help="of weights, activations and caches")
    made.add_argument("--variants", type=list_of(str), default=list(variants))
    arguments = made.parse_args()
    unknown = set(arguments.variants) - set(variants)
    if unknown:
        made.error(f"no variant {', '.join(sorted(unknown))}; there are {', '.join(variants)}")
    if arguments.size[0] >= arguments.size[1]:
        made.error(f"--{option}: the prompt must be shorter than the capacity")
    return arguments


def require_torch(arguments):
    """Returns torch. Exits with the reason if it is missing or finds no GPU."""
    if arguments.dry_run:
        sys.exit()
    try:
        import torch
    except ImportError as error:
        sys.exit(f"PyTorch is not installed for {sys.executable}: {error}")
    if not torch.cuda.is_available():
        sys.exit(f"PyTorch {torch.__version__} finds no CUDA device")
    torch.manual_seed(0)
    return torch


def emit(**fields):
    """Prints one JSON line without the fields that are None."""
    print(json.dumps({name: value for name, value in fields.items() if value is not None}), flush=True)


def machine():
    """Returns names and versions of the GPU and of the software."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "driver": Nvml.driver_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "python": platform.python_version(),
    }


class Nvml:
    """The energy counter of the first visible GPU, in the library of the driver."""

    def __init__(self):
        import torch

        self.library = self.open()
        uuid = str(torch.cuda.get_device_properties(0).uuid)
        uuid = uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
        self.device = ctypes.c_void_p()
        check(self.library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self.device)))
        self.joules()

    @staticmethod
    def open():
        library = ctypes.CDLL("libnvidia-ml.so.1")
        check(library.nvmlInit_v2())
        return library

    @staticmethod
    def find():
        """Returns the counter, or None if this machine has none."""
        try:
            return Nvml()
        except (OSError, AttributeError, RuntimeError) as error:
            print(f"no energy counter: {error}", file=sys.stderr)
            return None

    @staticmethod
    def driver_version():
        try:
            text = ctypes.create_string_buffer(96)
            check(Nvml.open().nvmlSystemGetDriverVersion(text, ctypes.c_uint(96)))
            return text.value.decode()
        except (OSError, AttributeError, RuntimeError):
            return None

    def joules(self):
        """Returns the energy since the driver was loaded."""
        millijoules = ctypes.c_ulonglong()
        check(self.library.nvmlDeviceGetTotalEnergyConsumption(self.device, ctypes.byref(millijoules)))
        return millijoules.value / 1e3


def check(code):
    """Raises the error of an NVML call."""
    if code != 0:
        raise RuntimeError(f"NVML returned {code}")


def timed(run, samples, before=lambda: None):
    """Returns the device milliseconds of each run between two events, with a wait after each.

    `before` runs first, untimed.
    """
    import torch

    times = []
    for _ in range(samples):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before()
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return times


def summary(times):
    """Returns median, minimum, maximum and number of times in milliseconds."""
    return {
        "ms_median": statistics.median(times),
        "ms_min": min(times),
        "ms_max": max(times),
        "samples": len(times),
    }


def back_to_back(run, ms, nvml):
    """Runs without waits between, for as long as the energy counter needs.

    Returns milliseconds and joules per run; joules are None without a counter. `ms` is the expected
    time of a run.
    """
    import torch

    seconds = ENERGY_SECONDS if nvml else 0.5
    runs = max(1, math.ceil(seconds * 1e3 / ms))
    torch.cuda.synchronize()
    before, started = nvml and nvml.joules(), time.perf_counter()
    for _ in range(runs):
        run()
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - started
    return {
        "pipelined_ms": elapsed * 1e3 / runs,
        "joules": (nvml.joules() - before) / runs if nvml else None,
    }


def measured(run, samples, nvml):
    """Returns the device times of single runs, and time and energy of runs without waits, after three runs."""
    for _ in range(3):
        run()
    times = summary(timed(run, samples))
    return {**times, **back_to_back(run, times["ms_median"], nvml)}


def captured(run, warm_up=3):
    """Returns the replay of `run` as a CUDA graph, after runs on a side stream."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(warm_up):
            run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay
