"""Measures training on several GPUs of one host, and checks that it repeats and survives kills.

Parts, one after another:
  steps   our step of each case on each number of GPUs, and PyTorch's beside it; a step of one GPU is the mean over all
          GPUs, each with a run of its own at the same time, as the peer measures it
  repeat  two runs of many steps, which must have the same losses and the same weights, bit for bit
  kills   a run whose processes are killed at random moments; it must end in time, and go on from its checkpoint
  resume  a run on the second most GPUs that continues from its checkpoint on the most

Prints a table. `--dry-run` runs small models on simulated GPUs, whose times mean nothing, and only checks the arguments
of the peer.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PEER = Path(__file__).resolve().parent / "peers" / "ddp.py"
QWEN_HALF = dict(layers=24, hidden=896, intermediate=4864, heads=14, kv_heads=2, vocab=151936)
QWEN_ONE_AND_HALF = dict(layers=28, hidden=1536, intermediate=8960, heads=12, kv_heads=2, vocab=151936)
LLAMA_8B = dict(layers=32, hidden=4096, intermediate=14336, heads=32, kv_heads=8, vocab=128256)
# Name, mode, dimensions, sequences per GPU and their length.
CASES = [
    ("LoRA 1.5B", "lora", QWEN_ONE_AND_HALF, (4, 512)),
    ("full 0.5B", "full", QWEN_HALF, (4, 512)),
    ("full 1.5B", "full", QWEN_ONE_AND_HALF, (4, 512)),
    ("LoRA 1.5B, 1×2048", "lora", QWEN_ONE_AND_HALF, (1, 2048)),
    ("LoRA 8B, 1×2048", "lora", LLAMA_8B, (1, 2048)),
]
# The longest time from a kill to the end of all other processes.
MAX_SECONDS = 10
WORDS = "the model reads a word and guesses the next one from those before it while each GPU has its own".split()


class Failed(Exception):
    """A run that did not end as it must."""


def parse():
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(part) for part in text.split(",")]
    names = lambda text: text.split(",")
    made.add_argument("--program", default="retrograph", help="our program")
    made.add_argument("--parts", type=names, default=["steps", "repeat", "kills"])
    made.add_argument("--gpus", type=numbers, default=[1, 2], help="numbers of GPUs, such as 1,2,4")
    made.add_argument("--cases", type=numbers, default=[0, 1, 2], help=f"numbers of cases, from 0: {', '.join(case[0] for case in CASES)}")
    made.add_argument("--steps", type=int, default=300, help="steps of a timed run: enough for GPUs to become warm")
    made.add_argument("--bucket-sizes", type=names, default=[""], help="such as 16MiB,64MiB; empty for the default")
    made.add_argument("--gradient-dtype", default="f32", help="of linear layers in full fine-tuning: f32 or bf16")
    made.add_argument("--variants", default="captured", help="variants of the peer; none leaves it out")
    made.add_argument("--repeat-steps", type=int, default=1000)
    made.add_argument("--kills", type=int, default=20)
    made.add_argument("--seed", type=int, default=1, help="of the moments of kills")
    made.add_argument("--seconds", type=float, default=float("inf"), help="no new run starts after this time")
    made.add_argument("--out", type=Path, help="a file for all results, as JSON Lines")
    made.add_argument("--dry-run", action="store_true")
    return made.parse_args()


class Bench:
    """The runs, their results, and a directory for their files."""

    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.started = time.monotonic()
        self.results = []
        self.bad = 0
        self.text, self.metrics = folder / "text.txt", folder / "metrics.jsonl"
        self.text.write_text(" ".join(random.Random(0).choices(WORDS, k=200_000)))

    def late(self):
        return time.monotonic() - self.started > self.arguments.seconds

    def keep(self, **result):
        self.results.append(result)
        if self.arguments.out:
            with self.arguments.out.open("a") as file:
                file.write(json.dumps(result) + "\n")

    def fail(self, what, why):
        self.bad += 1
        self.keep(kind="failure", what=what, why=why)
        print(f"FAILED {what}: {why}", flush=True)

    def command(self, gpus, *more):
        """Returns a command line of our program for a number of GPUs."""
        line = [self.arguments.program, "finetune", "--text", self.text, "--sample", "0", *more]
        if self.arguments.dry_run:
            line += ["--device", "sim"]
        if gpus > 1:
            line += ["--gpus", gpus]
        return [str(part) for part in line]

    def model(self, dimensions, mode, layers=None):
        """Returns the flags of a model; a dry run has a small one."""
        flags = ["--mode", mode, "--dtype", "bf16"]
        if mode == "lora":
            flags += ["--rank", "16", "--lora-targets", "q,v", "--train-norms"]
        else:
            flags += ["--gradient-dtype", self.arguments.gradient_dtype]
        if not self.arguments.dry_run:
            flags += ["--preset", "qwen2.5-1.5b", *shape(dimensions | ({"layers": layers} if layers else {}))]
        return flags

    def run(self, line, timeout=240):
        """Runs to the end. Returns standard output."""
        return self.run_together([(line, {})], timeout)[0]

    def run_together(self, lines, timeout=240):
        """Runs command lines at the same time, each with variables of its own. Returns standard outputs."""
        running = [
            subprocess.Popen(line, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for line, variables in lines
        ]
        try:
            ended = [(process.communicate(timeout=timeout), process.returncode) for process in running]
        finally:
            for process in running:
                process.kill()
        for (_, error), status in ended:
            if status != 0:
                raise Failed(f"status {status}: {error.strip()[-600:]}")
        return [output for (output, _), _ in ended]

    def measured(self, gpus, flags, steps, size):
        """Runs steps, and returns the report. If `gpus` is 1, every GPU has a run of its own at the same time; returns the
        report of the first, with the mean of their times and the times of each."""
        per_gpu, seq = size
        every = [str(index) for index in range(max(self.arguments.gpus))]
        visible = os.environ["CUDA_VISIBLE_DEVICES"].split(",") if "CUDA_VISIBLE_DEVICES" in os.environ else every
        runs = [{"CUDA_VISIBLE_DEVICES": device} for device in visible[:len(every)]] if gpus == 1 else [{}]
        reports = [self.folder / f"report-{index}.json" for index in range(len(runs))]
        more = ("--steps", steps, "--batch", per_gpu * gpus, "--seq", seq, "--discard")
        lines = [self.command(gpus, *flags, *more, "--report", report) for report in reports]
        self.run_together(list(zip(lines, runs)))
        found = [json.loads(report.read_text()) for report in reports]
        times = [report["step_ms_median"] for report in found]
        # Simulated devices report no times.
        mean = None if None in times else statistics.fmean(times)
        return found[0] | {"step_ms_median": mean, "each_ms": times}

    def steps(self):
        """Times our step and the peer's."""
        steps = 3 if self.arguments.dry_run else self.arguments.steps
        for name, mode, dimensions, (per_gpu, seq) in (CASES[number] for number in self.arguments.cases):
            size = (per_gpu, 16 if self.arguments.dry_run else seq)
            for bucket in self.arguments.bucket_sizes:
                flags = self.model(dimensions, mode) + (["--bucket-size", bucket] if bucket else [])
                for gpus in self.arguments.gpus:
                    if self.late():
                        return
                    try:
                        found = self.measured(gpus, flags, steps, size)
                    except (Failed, subprocess.TimeoutExpired) as error:
                        self.fail(f"{name} on {gpus}", str(error))
                        continue
                    keys = ("step_ms_median", "each_ms", "strategy", "reason", "operations", "nodes", "edges", "collectives", "device", "memory")
                    kept = {key: found.get(key) for key in keys}
                    self.keep(kind="step", case=name, gpus=gpus, bucket=bucket, loss=found["losses"][-1], **kept)
                    print(f"{name} on {gpus} {bucket}: {number(found['step_ms_median'])} ms", flush=True)
            if self.arguments.variants != "none" and not self.late():
                self.peer(name, mode, dimensions, f"{per_gpu}x{seq}")

    def peer(self, name, mode, dimensions, size):
        """Times the peer on the most GPUs, and on each alone."""
        gpus = max(self.arguments.gpus)
        flags = shape(dimensions) + ["--mode", mode, "--dtype", "bf16", "--size", size, "--samples", "60"]
        line = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={gpus}"]
        line = [sys.executable] if self.arguments.dry_run else line
        line += [str(PEER), *flags, "--variants", self.arguments.variants]
        line += ["--dry-run"] if self.arguments.dry_run else []
        try:
            for text in self.run(line, timeout=300).splitlines():
                if text.startswith("{"):
                    found = json.loads(text)
                    self.keep(case=name, gpus=1 if found.pop("kind") == "alone" else gpus, **found, kind="peer")
                    print(f"peer: {text[:160]}", flush=True)
        except (Failed, subprocess.TimeoutExpired) as error:
            self.fail(f"peer of {name}", str(error))

    def repeat(self):
        """Runs the same steps twice on the most GPUs."""
        gpus = max(self.arguments.gpus)
        steps, seq = (5, 16) if self.arguments.dry_run else (self.arguments.repeat_steps, 128)
        for name, mode, output in (("LoRA 0.5B", "lora", "--adapter-out"), ("full, 4 layers", "full", "--model-out")):
            found = []
            for number in range(2):
                if self.late():
                    return
                weights, report = self.folder / f"weights-{mode}-{number}", self.folder / "report.json"
                flags = self.model(QWEN_HALF, mode, None if mode == "lora" else 4)
                line = self.command(gpus, *flags, "--steps", steps, "--batch", 2 * gpus, "--seq", seq,
                                    output, weights, "--report", report, "--seed", 3)
                try:
                    self.run(line)
                except (Failed, subprocess.TimeoutExpired) as error:
                    self.fail(f"repeat {name}", str(error))
                    break
                losses = json.loads(report.read_text())["losses"]
                digest = hashlib.sha256()
                for file in sorted(weights.glob("*.safetensors")):
                    digest.update(file.read_bytes())
                found.append((losses, digest.hexdigest()))
                shutil.rmtree(weights)
            if len(found) == 2:
                equal = found[0] == found[1] and len(found[0][0]) == steps
                self.keep(kind="repeat", case=name, gpus=gpus, steps=steps, equal=equal, sha256=found[0][1])
                print(f"repeat {name}: {'equal' if equal else 'DIFFERENT'}", flush=True)
                self.bad += not equal

    def kills(self):
        """Kills processes of a run that goes on from its checkpoint each time."""
        gpus = max(self.arguments.gpus)
        chance = random.Random(self.arguments.seed)
        folder = self.folder / "checkpoints"
        base = self.command(gpus, *self.model(QWEN_HALF, "full", 2), "--steps", 1_000_000, "--batch", 2 * gpus,
                            "--seq", 16 if self.arguments.dry_run else 64, "--checkpoint", folder,
                            "--checkpoint-every", 5 if self.arguments.dry_run else 50, "--metrics", self.metrics)
        steps = 0
        for number in range(self.arguments.kills):
            if self.late():
                return
            try:
                steps = self.kill(chance, base + (["--resume"] if steps else []), (number, folder, steps))
            except Failed as error:
                self.fail(f"kill {number}", str(error))
                return
        # The last checkpoint goes on as well.
        process = Process(base + ["--resume"], self.folder / "last.txt", self.metrics)
        try:
            process.wait_for_step()
            process.launcher.send_signal(signal.SIGINT)
            process.ended(60)
        except Failed as error:
            self.fail("after the last kill", f"{error}: {process.tail()}")
        finally:
            process.clear()

    def kill(self, chance, line, state):
        """Starts a run, kills one of its processes, and returns the steps of the checkpoint it leaves."""
        number, folder, before = state
        process = Process(line, self.folder / f"kill-{number}.txt", self.metrics)
        try:
            process.wait_for_step()
            # The first run leaves a checkpoint before it is killed.
            while not before and not (folder / "latest").exists():
                process.alive()
                time.sleep(0.05)
            time.sleep(chance.uniform(0, 2.5))
            process.alive()
            victims = {"launcher": process.launcher.pid}
            victims |= {f"rank {rank}": pid for rank, pid in enumerate(process.ranks())}
            victim = chance.choice(sorted(victims))
            os.kill(victims[victim], signal.SIGKILL)
            killed = time.monotonic()
            process.ended(MAX_SECONDS)
            seconds = time.monotonic() - killed
            text = process.tail()
            if victim != "launcher" and victim not in text:
                raise Failed(f"{victim} was killed, and no message names it: {text}")
            latest = (folder / "latest").read_text().strip()
            steps = int("".join(filter(str.isdigit, latest)))
            if steps < before:
                raise Failed(f"the checkpoint is older than before: {latest}")
            self.keep(kind="kill", number=number, victim=victim, seconds=seconds, steps=steps, gpus=len(victims) - 1)
            print(f"kill {number}: {victim}, all ended after {seconds:.2f} s, checkpoint of step {steps}", flush=True)
            return steps
        except Failed as error:
            raise Failed(f"{error}: {process.tail()}") from error
        finally:
            process.clear()


    def resume(self):
        """Continues the checkpoint of some GPUs on more."""
        counts, folder = sorted(self.arguments.gpus)[-2:], self.folder / "resumed"
        report, losses = self.folder / "report.json", []
        batch = 2 * counts[-1]
        for gpus, steps in zip(counts, (5, 10)):
            line = self.command(gpus, *self.model(QWEN_HALF, "full", 2), "--steps", steps, "--schedule-steps", 10, "--batch",
                                batch, "--seq", 16 if self.arguments.dry_run else 64, "--checkpoint", folder, "--report", report)
            try:
                self.run(line + (["--resume"] if losses else []))
            except (Failed, subprocess.TimeoutExpired) as error:
                return self.fail(f"resume on {gpus}", str(error))
            before, losses = losses, json.loads(report.read_text())["losses"]
            if len(losses) != steps or losses[:len(before)] != before:
                return self.fail(f"resume on {gpus}", f"the losses are {losses} after {before}")
        self.keep(kind="resume", gpus=counts, losses=losses)
        print(f"resume: a checkpoint of {counts[0]} GPUs continues on {counts[-1]}", flush=True)


def shape(dimensions):
    """Returns the flags of a model, ours and the peer's."""
    return [part for key, value in dimensions.items() for part in (f"--{key.replace('_', '-')}", str(value))]


class Process:
    """A run of several processes, in a session of its own."""

    def __init__(self, line, log, grows):
        self.log, self.known = log, []
        self.grows, self.before = grows, size(grows)
        with log.open("w") as file:
            self.launcher = subprocess.Popen(line, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)

    def tail(self):
        return self.log.read_text()[-500:].strip().replace("\n", " | ")

    def alive(self):
        if self.launcher.poll() is not None:
            raise Failed(f"the run has ended with status {self.launcher.returncode}")

    def wait_for_step(self, seconds=120):
        """Waits until the file of metrics becomes longer than at the start of the run."""
        until = time.monotonic() + seconds
        while size(self.grows) <= self.before:
            self.alive()
            if time.monotonic() > until:
                raise Failed("the run does not start to train")
            time.sleep(0.05)
        self.ranks()

    def ranks(self):
        """Returns the processes of the ranks, in order."""
        tasks = Path(f"/proc/{self.launcher.pid}/task").glob("*/children")
        children = {int(pid) for task in tasks for pid in task.read_text().split()}

        def rank(pid):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            return next((int(it.split(b"=")[1]) for it in variables if it.startswith(b"RETROGRAPH_RANK=")), -1)

        found = sorted((rank(pid), pid) for pid in children)
        self.known = [pid for number, pid in found if number >= 0]
        return self.known

    def ended(self, seconds):
        """Waits until no process is left."""
        until = time.monotonic() + seconds
        while self.launcher.poll() is None or any(running(pid) for pid in self.known):
            if time.monotonic() > until:
                left = [pid for pid in self.known if running(pid)]
                raise Failed(f"after {seconds} s, processes are left: {left}, launcher {self.launcher.poll()}")
            time.sleep(0.02)

    def clear(self):
        for pid in [*self.known, self.launcher.pid]:
            try:
                if running(pid):
                    os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.launcher.wait()


def size(file):
    return file.stat().st_size if file.exists() else 0


def running(pid):
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def number(value, digits=2):
    return "–" if value is None else f"{value:.{digits}f}"


def table(bench):
    """Prints the results."""
    steps = [it for it in bench.results if it["kind"] == "step"]
    peers = [it for it in bench.results if it["kind"] == "peer" and "ms_median" in it and "mib" not in it]

    def ours(case, bucket, gpus):
        found = [it for it in steps if (it["case"], it["bucket"], it["gpus"]) == (case, bucket, gpus)]
        return found[0]["step_ms_median"] if found else None

    def peer(case, gpus):
        found = [it["ms_median"] for it in peers if (it["case"], it["gpus"]) == (case, gpus)]
        return min(found, default=None)

    def speedup(alone, together, gpus):
        return gpus * alone / together if alone and together else None

    if bench.arguments.dry_run:
        print("\nDRY RUN: small models on simulated GPUs")
    names = "step GPUs bucket ours,_ms ours,_× peer,_ms peer,_× peer_÷_ours collectives beside_them".split()
    print("\n| " + " | ".join(names).replace("_", " ") + " |\n" + "|---" * len(names) + "|")
    for it in steps:
        case, bucket, gpus = it["case"], it["bucket"], it["gpus"]
        mine, theirs = it["step_ms_median"], peer(case, gpus)
        of_mine, of_theirs = speedup(ours(case, bucket, 1), mine, gpus), speedup(peer(case, 1), theirs, gpus)
        exchanged = it["collectives"] or {"operations": 0, "bytes": 0, "overlapping": 0}
        print(
            f"| {case} | {gpus} | {bucket or 'default'} | {number(mine)} | {number(of_mine, 3)} | {number(theirs)} "
            f"| {number(of_theirs, 3)} | {number(theirs / mine if mine and theirs else None, 3)} "
            f"| {exchanged['operations']} of {exchanged['bytes'] / 2**20:.1f} MiB | {exchanged['overlapping']} of "
            f"{it['operations']} operations |"
        )
    for it in (it for it in bench.results if it["kind"] == "repeat"):
        print(f"{it['case']}, {it['gpus']} GPUs, {it['steps']} steps twice: {'equal' if it['equal'] else 'DIFFERENT'}")
    kills = [it for it in bench.results if it["kind"] == "kill"]
    if kills:
        most = max(it["seconds"] for it in kills)
        print(f"{len(kills)} kills, the run went on after each; at most {most:.2f} s until all processes had ended")
    print(f"{bench.bad} failures, {time.monotonic() - bench.started:.0f} s")


def main():
    arguments = parse()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, Path(folder))
        for part in arguments.parts:
            getattr(bench, part)()
        table(bench)
    sys.exit(bench.bad > 0)


if __name__ == "__main__":
    main()
