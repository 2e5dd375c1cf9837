#!/usr/bin/env python3
"""Gates on the compiled machine code of the attention kernels and of the matrix products.

What cannot be run here can still be read: for every such kernel in a build folder, of every architecture that was
built, this reads registers, spills, local (scratch) memory, shared memory (LDS), occupancy, and of the inner loop the
matrix instructions by mnemonic, all other instructions per matrix instruction, and the widths of its loads. Numbers are
kept in a table with a reason beside each row, and a change is an error until the table is changed with it.

  isa_gates.py check  BUILD   compares; 1 when a number moved, a spill is new, or a row is missing
  isa_gates.py update BUILD   rewrites the numbers of every kernel that was built, keeps reasons and the rest
  isa_gates.py show   [BUILD] prints the build's numbers, or without one the table's

machine_code.py reads the objects, and says what the inner loop is and which tools that takes (--cuda-tools names the folder of
NVIDIA's). Shared memory and occupancy are of the launch: threads and dynamic bytes come from BUILD/isa_shared.json, which a build writes
by the planning code itself (perf/isa_shared.cpp says for which configuration). A kernel that it does not name is an error, and
so is one that does not fit on its architecture, whatever the table says.
"""
import argparse
import collections
import concurrent.futures
import glob
import json
import os
import re
import sys

from machine_code import fail, cuda_tools, read_nvidia, read_amd

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLE = os.path.join(ROOT, "perf", "isa_gates.json")
TOLERANCE = 0.03  # of counts and ratios; spills, local and shared memory and occupancy may not move at all
ARCHITECTURES = ("sm_80", "sm_90", "sm_90a", "sm_120", "gfx942", "gfx950")
NO_REASON = "to be explained"

# What a multiprocessor (compute unit) shares out. Registers of NVIDIA are allocated by warp in units of 256, at most 64 K a
# multiprocessor; of AMD's vector registers a SIMD has 512 a lane and four SIMDs make a unit, whose LDS is given out by `grain`.
Nvidia = collections.namedtuple("Nvidia", "registers warps blocks shared reserved")
LIMITS = {
    "sm_80": Nvidia(65536, 64, 32, 164 * 1024, 1024),
    "sm_90": Nvidia(65536, 64, 32, 228 * 1024, 1024),
    "sm_90a": Nvidia(65536, 64, 32, 228 * 1024, 1024),
    "sm_120": Nvidia(65536, 48, 24, 100 * 1024, 1024),
}
Amd = collections.namedtuple("Amd", "registers waves_per_simd simds lds grain")
LIMITS |= {"gfx942": Amd(512, 8, 4, 64 * 1024, 512), "gfx950": Amd(512, 8, 4, 160 * 1024, 1280)}
# Of a block on these, reserved by the system and counted by the compiler as the kernel's own.
RESERVED_IN_STATIC = {"sm_90": 1024, "sm_90a": 1024, "sm_120": 1024}

EXACT = ("spill", "local_bytes", "static_shared", "dynamic_shared", "launch_threads", "occupancy_warps", "packed_fma", "matrix")


def family(arch):
    """Columns of the table: sm_120f and sm_121f are one family."""
    if re.fullmatch(r"sm_12[01][af]?", arch):
        return "sm_120"
    return arch


def nvidia_occupancy(arch, registers, threads, shared):
    """Resident warps of a multiprocessor."""
    limit = LIMITS[arch]
    warps = threads // 32
    per_warp = -(-registers * 32 // 256) * 256
    # A quarter of the registers belongs to each of the four schedulers.
    by_registers = 4 * (limit.registers // 4 // per_warp) // warps
    by_shared = limit.shared // (-(-shared // 1024) * 1024 + limit.reserved)
    return warps * min(by_registers, by_shared, limit.warps // warps, limit.blocks)


def amd_occupancy(arch, registers, threads, lds):
    """Resident waves of a compute unit. Blocks are spread over its SIMDs wave by wave."""
    limit = LIMITS[arch]
    waves = threads // 64
    per_simd = min(limit.waves_per_simd, limit.registers // (-(-max(registers, 1) // 8) * 8))
    by_registers = per_simd * limit.simds // waves
    by_lds = limit.lds // (-(-lds // limit.grain) * limit.grain) if lds else by_registers
    return waves * min(by_registers, by_lds)


# --- a build folder -------------------------------------------------------------------------------------------------------


def rows_of(list_file):
    """The rows of a list of instances, as they are written."""
    with open(os.path.join(ROOT, list_file), encoding="utf-8") as text:
        return [line.strip().rstrip(",") for line in text if line.startswith("    instance::")]


def short_name(row):
    return re.sub(r"\binstance::|KvKind::k", "", row)


def list_of(build, path):
    """The list that an object's kernels are rows of, by the first line of the source that it was generated from."""
    stem = os.path.basename(path).split(".")[0]
    for source in glob.glob(os.path.join(glob.escape(build), "**", stem + ".*"), recursive=True):
        if source.endswith((".cu", ".hip")) and os.path.basename(os.path.dirname(source)) in path:
            with open(source, encoding="utf-8") as text:
                found = re.search(r"[Rr]ow \d+ of (\S+\.hpp)", text.read())
            if found:
                return found[1]
    fail(f"no generated source names the list of {path}'s kernels; it would say 'Row N of <list>.hpp'")


def row_number(function):
    """Which row of its list an attention kernel is, by its name: attend<22>, attend_native<3>, attend_sm90<0>, fp4pa_attend_7."""
    found = re.search(r"attend(?:_native|_sm90)?ILi(\d+)E|fp4pa_attend_(\d+)$", function)
    return int(found[1] or found[2]) if found else fail(f"no row of a list is known for the kernel {function}")


def gemm_name(function):
    """A matrix product's kernel as its template arguments have it: gemm_native(Nvfp4, 64)."""
    found = re.search(r"4gemmILb([01])ELi(\d+)ELb([01])E", function)  # cuda/gemm.cu
    if found:
        return f"gemm({('Mxfp4', 'Nvfp4')[int(found[1])]}, {8 * int(found[2])}, {('as it is', 'paired')[int(found[3])]})"
    x_type = ("", ", bf16")  # f16 where none is named
    form = ("", ", plain", ", halves", ", wide halves")
    found = re.search(r"8gemm_fewILb([01])ELb([01])ELi([124])ELN\w*7FewFormE([0123])E", function)  # cuda/gemm_sm90.cu
    if found:
        return f"gemm_few({('Mxfp4', 'Nvfp4')[int(found[1])]}, {8 // int(found[3])}{x_type[int(found[2])]}{form[int(found[4])]})"
    found = re.search(r"14gemm_few_tilesILb([01])ELb([01])ELi(\d)E", function)  # cuda/gemm_sm90_tiles.cu
    if found:
        return f"gemm_few({('Mxfp4', 'Nvfp4')[int(found[1])]}, 2{x_type[int(found[2])]}, plain, {16 * int(found[3])} rows of W)"
    found = re.search(r"12gemm_sixteenILb([01])ELb([01])ELN\w*7FewFormE([0123])E", function)
    if found:
        return f"gemm_sixteen({('Mxfp4', 'Nvfp4')[int(found[1])]}{x_type[int(found[2])]}{form[int(found[3])]})"
    found = re.search(r"9gemm_manyILb([01])ELb([01])ELi(\d+)E", function)
    if found:
        return f"gemm_many({('Mxfp4', 'Nvfp4')[int(found[1])]}, {found[3]}{x_type[int(found[2])]})"
    found = re.search(r"11gemm_nativeILb([01])ELi(\d+)E", function)  # cuda/gemm_native.cu
    if found:
        return f"gemm_native({('Mxfp4', 'Nvfp4')[int(found[1])]}, {8 * int(found[2])})"
    found = re.search(r"4gemmILNS\w*8GemmPathE(\d)ELi(\d+)E", function)  # hip/gemm.hip
    if found:
        kernel = ("gemm_native(Mxfp4", "gemm(Mxfp4", "gemm(Nvfp4", "gemm_terms(Mxfp4")[int(found[1])]
        return f"{kernel}, {16 * int(found[2])})"
    fail(f"no name is known for the matrix product {function}")


def read_file(file):
    read, path, tools = file
    return list(read(path, tools))


def collect(build, given_tools):
    """{architecture: {instance: numbers}} of everything that was built."""
    if not os.path.isdir(build):
        fail(f"{build} is no folder; build first, for example: cmake --preset all && cmake --build --preset all")
    def objects(ending):
        return [path for name in ("attend*", "gemm", "gemm_native", "gemm_sm90*")
                for path in glob.glob(os.path.join(glob.escape(build), "**", name + ending), recursive=True)]

    nvidia = objects(".cu.o")
    amd = objects(".hipfb")
    tools = cuda_tools(given_tools) if nvidia else None
    launches = load_launches(build)
    table = collections.defaultdict(dict)
    files = [(read, path, tools) for paths, read in ((nvidia, read_nvidia), (amd, read_amd)) for path in sorted(paths)]
    # Reading machine code is text processing: a file a process.
    with concurrent.futures.ProcessPoolExecutor() as processes:
        for (_, path, _), kernels in zip(files, processes.map(read_file, files)):
            is_gemm = os.path.basename(path).startswith("gemm")
            list_file = "gemm" if is_gemm else list_of(build, path)
            for arch, function, numbers in kernels:
                of_launch = gemm_name(function) if is_gemm else row_number(function)
                finish(family(arch), numbers, launch_of(launches, list_file, family(arch), of_launch))
                name = of_launch if is_gemm else short_name(rows_of(list_file)[of_launch])
                table[family(arch)][name] = numbers
    return table


def load_launches(build):
    path = os.path.join(build, "isa_shared.json")
    if not os.path.exists(path):
        fail(f"{path} is missing, which says what the kernels are launched with; build the target fp4pa_isa_launches")
    with open(path, encoding="utf-8") as text:
        return json.load(text)


def launch_of(launches, list_file, arch, row):
    """What perf/isa_shared.cpp says of a kernel, by its number in its list or, of products, by its name."""
    try:
        return launches[list_file][arch][row]
    except (KeyError, IndexError):
        fail(f"isa_shared.json says nothing of {list_file}, {arch}, {row}; allowed: what perf/isa_shared.cpp writes. Build the "
             "target fp4pa_isa_launches again, or add the kernel there")


def finish(arch, numbers, launch):
    """Adds what depends on the launch."""
    if arch not in LIMITS:
        fail(f"no limits are known of {arch}; known: {', '.join(LIMITS)}")
    numbers["launch_threads"] = launch["threads"]
    numbers["dynamic_shared"] = launch["dynamic_shared"]
    static = max(0, numbers["static_shared"] - RESERVED_IN_STATIC.get(arch, 0))
    occupancy = nvidia_occupancy if arch.startswith("sm_") else amd_occupancy
    warps = occupancy(arch, numbers["registers"], launch["threads"], static + launch["dynamic_shared"])
    if launch["blocks"]:
        warps = min(warps, launch["blocks"] * launch["threads"] // (32 if arch.startswith("sm_") else 64))
    numbers["occupancy_warps"] = warps


# --- comparing and printing -----------------------------------------------------------------------------------------------


def differences(old, new):
    """Names and values of what moved more than a little."""
    for key in sorted(set(old) | set(new)):
        if key == "reason":
            continue
        a, b = old.get(key), new.get(key)
        if a == b:
            continue
        both_numbers = all(isinstance(x, (int, float)) for x in (a, b))
        if key in EXACT or not both_numbers or abs(a - b) > TOLERANCE * max(abs(a), abs(b)):
            yield f"{key}: {a} -> {b}"


def load_table():
    if not os.path.exists(TABLE):
        return {}
    with open(TABLE, encoding="utf-8") as text:
        return json.load(text)


def check(table, built, require):
    problems = []
    for arch in ARCHITECTURES:
        if arch not in built:
            print(f"{arch}: not built")
            if arch in require:
                problems.append(f"{arch} is required and was not built")
            continue
        rows = table.get(arch, {})
        for name, numbers in built[arch].items():
            where = f"{arch}, {name}"
            if numbers["occupancy_warps"] == 0:
                problems.append(f"{where}: not one block fits, with {numbers['registers']} registers, "
                                f"{numbers['launch_threads']} threads and {numbers['dynamic_shared']} bytes of shared memory")
            if numbers["launch_threads"] > numbers["threads"]:
                problems.append(f"{where}: launched with {numbers['launch_threads']} threads, compiled for {numbers['threads']}")
            if name not in rows:
                problems.append(f"{where}: not in the table")
                continue
            if rows[name].get("reason", NO_REASON) == NO_REASON:
                problems.append(f"{where}: its row has no reason")
            problems += [f"{where}: {difference}" for difference in differences(rows[name], numbers)]
        problems += [f"{arch}, {name}: in the table, not built" for name in rows if name not in built[arch]]
        print(f"{arch}: {len(built[arch])} kernels read")
    for problem in problems:
        print(f"isa_gates: {problem}")
    if problems:
        print("isa_gates: where a change is meant, run `perf/isa_gates.py update BUILD` and write the reason into "
              "perf/isa_gates.json")
    return 1 if problems else 0


def update(table, built):
    for arch, rows in built.items():
        old = table.get(arch, {})
        table[arch] = {name: {"reason": old.get(name, {}).get("reason", NO_REASON), **n} for name, n in rows.items()}
    ordered = {arch: table[arch] for arch in ARCHITECTURES if arch in table}
    with open(TABLE, "w", encoding="utf-8") as text:
        json.dump(ordered, text, indent=1)
        text.write("\n")
    for arch, rows in ordered.items():
        missing = [name for name, row in rows.items() if row["reason"] == NO_REASON]
        print(f"{arch}: {len(rows)} rows" + (f", to be explained: {'; '.join(missing)}" if missing else ""))


def show(table):
    columns = ("threads", "reg", "spill", "local", "shared", "warps", "loop", "others/matrix")
    for arch, rows in table.items():
        width = max(len(name) for name in rows)
        print(f"{arch:{width}}  " + "  ".join(f"{c:>6}" for c in columns) + "  matrix instructions of the inner loop; its loads")
        for name, n in rows.items():
            shared = n["static_shared"] + (n["dynamic_shared"] or 0)
            cells = (n.get("launch_threads", n["threads"]), n["registers"], n["spill"], n["local_bytes"], shared, n["occupancy_warps"],
                     n["loop_instructions"], n["others_per_matrix"])
            tail = ", ".join(f"{c} {m}" for m, c in n["matrix"].items()) + "; "
            tail += ", ".join(f"{c} {m}" for m, c in n["loop_loads"].items())
            print(f"{name:{width}}  " + "  ".join(f"{str(c):>{max(6, len(k))}}" for c, k in zip(cells, columns)) + "  " + tail)
        print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("check", "update", "show"))
    parser.add_argument("build", nargs="?", help="build folder with the kernels' objects")
    parser.add_argument("--cuda-tools", help="folder with cuobjdump and nvdisasm")
    parser.add_argument("--require", default="", help="architectures that must have been built, comma-separated")
    arguments = parser.parse_args()
    require = [a for a in arguments.require.split(",") if a]
    unknown = [a for a in require if a not in ARCHITECTURES]
    if unknown:
        fail(f"--require has {unknown[0]}; allowed: {', '.join(ARCHITECTURES)}")
    if arguments.build is None:
        if arguments.command != "show":
            fail(f"{arguments.command} needs a build folder")
        return show(load_table())
    built = collect(arguments.build, arguments.cuda_tools)
    if arguments.command == "show":
        return show(built)
    if arguments.command == "update":
        return update(load_table(), built)
    return check(load_table(), built, require)


if __name__ == "__main__":
    sys.exit(main())
