"""Times a training step on several GPUs in plain PyTorch: DistributedDataParallel, captured as one CUDA graph per rank.

Start it with torchrun. Each rank has the batch of `--size`. Prints one JSON line per measurement: all-reduces in a graph,
a step of each rank alone, and a step of all together; `compiled` is that of torch.compile. Arguments are those of step.py.
"""

import gc
import os
import statistics
import time

from common import captured, emit, list_of, machine, parser, require_torch, summary
from step import Step, options, parse_step, with_step

VARIANTS = ("captured", "compiled")
# DistributedDataParallel measures its buckets in the first steps.
WARM_UP = 12


def parse():
    made = with_step(parser(__doc__))
    made.add_argument("--variants", type=list_of(str), default=list(VARIANTS))
    made.add_argument("--all-reduce", type=list_of(float), default=[], metavar="MIB", help="sizes to time")
    arguments = parse_step(made)
    unknown = set(arguments.variants) - set(VARIANTS)
    if unknown:
        made.error(f"no variant {', '.join(sorted(unknown))}; there are {', '.join(VARIANTS)}")
    return arguments


def timed(torch, replay, samples):
    """Returns the milliseconds of replays that all ranks start together."""
    times = []
    for _ in range(samples):
        torch.distributed.barrier()
        torch.cuda.synchronize()
        started = time.perf_counter()
        replay()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - started) * 1e3)
    return times


def pipelined(torch, replay, runs):
    """Returns the milliseconds of a replay among many without waits."""
    torch.distributed.barrier()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(runs):
        replay()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) * 1e3 / runs


def all_reduce(torch, mib, samples):
    """Returns the milliseconds of one all-reduce among several in a graph."""
    values = torch.ones(max(1, int(mib * 2**18)), device="cuda")
    in_graph = 4

    def run():
        for _ in range(in_graph):
            torch.distributed.all_reduce(values)

    replay = captured(run)
    for _ in range(3):
        replay()
    return statistics.median(timed(torch, replay, samples)) / in_graph


def built(torch, variant, arguments, together):
    """Returns the step of a variant with a new model, and the number of steps before its capture."""
    from model import Transformer

    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Transformer(options(arguments, torch, variant), arguments.size[1])
    run = torch.compile(model, dynamic=False) if variant == "compiled" else model
    if not together:
        return Step(torch, run, arguments), 3
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        parallel = torch.nn.parallel.DistributedDataParallel(
            run,
            device_ids=[torch.cuda.current_device()],
            gradient_as_bucket_view=True,
            static_graph=True,
        )
    torch.cuda.synchronize()
    return Step(torch, parallel, arguments, keeps=True), WARM_UP


def measure(torch, variant, arguments, together):
    """Returns the times of a step of each rank alone, or of all together."""
    torch.cuda.reset_peak_memory_stats()
    step, warm_up = built(torch, variant, arguments, together)
    replay = captured(step.run, warm_up)
    for _ in range(3):
        replay()
    times = summary(timed(torch, replay, arguments.samples))
    return {
        **times,
        "pipelined_ms": pipelined(torch, replay, arguments.samples),
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
    }


def main():
    arguments = parse()
    torch = require_torch(arguments)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # f32 products keep f32 accuracy, like ours.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    about = machine()

    def say(**fields):
        if rank == 0:
            emit(**fields, ranks=world, machine=about)

    for mib in arguments.all_reduce:
        say(kind="all_reduce", mib=mib, ms_median=all_reduce(torch, mib, arguments.samples))
    for variant in arguments.variants:
        for together in (False, True):
            try:
                results = measure(torch, variant, arguments, together)
            except Exception as error:
                results = {"error": f"{type(error).__name__}: {error}"[:300]}
            say(kind="together" if together else "alone", variant=variant, **results)
            gc.collect()
            torch.cuda.empty_cache()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
