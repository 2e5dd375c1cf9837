#!/usr/bin/env python3
"""Gates on the compiled machine code of the attention kernels and of the matrix products.

What cannot be run here can still be read: for every such kernel in a build folder, of every architecture that was
built, this reads registers, spills, local (scratch) memory, shared memory (LDS), occupancy, and of the inner loop the
matrix instructions by mnemonic, all other instructions per matrix instruction, and the widths of its loads. Numbers are
kept in a table with a reason beside each row, and a change is an error until the table is changed with it.

  isa_gates.py check  BUILD   compares; 1 when a number moved, a spill is new, or a row is missing
  isa_gates.py update BUILD   rewrites the numbers of every kernel that was built, keeps reasons and the rest
  isa_gates.py show   [BUILD] prints the build's numbers, or without one the table's

The inner loop is the natural loop (of the control flow graph) with the most matrix instructions among those that hold no
other loop with any. It has everything that a way from its head to its head can pass, also what is rarely taken.
Shared memory and occupancy are of the launch: threads and dynamic bytes come from BUILD/isa_shared.json, which a build writes
by the planning code itself (perf/isa_shared.cpp says for which configuration). A kernel that it does not name is an error, and
so is one that does not fit on its architecture, whatever the table says.

NVIDIA objects need cuobjdump and nvdisasm (of a CUDA Toolkit, or of the triton wheel; --cuda-tools names their folder),
AMD's need clang-offload-bundler, llvm-readelf and llvm-objdump. Python's standard library is all else it takes.
"""
import argparse
import collections
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

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
# `target`: of a branch. `ends`: nothing is executed after it but its target.
Instruction = collections.namedtuple("Instruction", "address mnemonic target ends")


def fail(message):
    sys.exit(f"isa_gates: {message}")


def output_of(*command, **kwargs):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)
    if done.returncode != 0:
        fail(f"{' '.join(command)} failed: {done.stderr.strip() or done.returncode}")
    return done.stdout


def family(arch):
    """Columns of the table: sm_120f and sm_121f are one family."""
    if re.fullmatch(r"sm_12[01][af]?", arch):
        return "sm_120"
    return arch


def llvm_tool(name):
    for candidate in (f"{name}-22", name, f"/opt/rocm/llvm/bin/{name}"):
        path = shutil.which(candidate)
        if path:
            return path
    fail(f"{name} is needed to read AMD code objects: install llvm-22 and clang-22 or ROCm")


def cuda_tools(given):
    """A folder with cuobjdump and nvdisasm."""
    folders = [given, os.environ.get("FP4PA_CUDA_TOOLS"), "/usr/local/cuda/bin"]
    found = shutil.which("cuobjdump")
    folders.append(os.path.dirname(found) if found else None)
    for folder in sys.path:
        folders.append(os.path.join(folder, "triton/backends/nvidia/bin"))
    for folder in folders:
        if folder and all(os.access(os.path.join(folder, t), os.X_OK) for t in ("cuobjdump", "nvdisasm")):
            return folder
    fail("cuobjdump and nvdisasm are needed to read NVIDIA objects: install them, or name their folder with --cuda-tools "
         "or FP4PA_CUDA_TOOLS (the triton wheel has both under triton/backends/nvidia/bin)")


# --- loops and what they hold ---------------------------------------------------------------------------------------------


def is_matrix(mnemonic):
    return bool(re.match(r"(HMMA|QMMA|OMMA|IMMA|BMMA|HGMMA|QGMMA|v_mfma|v_smfmac)", mnemonic))


def matrix_name(mnemonic):
    """HMMA.16816.F32.BF16 and v_mfma_scale_f32_16x16x128_f8f6f4 as they are, without what scheduling adds."""
    return re.sub(r"(_e32|_e64|_vop3)$", "", mnemonic)


def blocks_of(code):
    """Basic blocks as (first, last) positions, and the successors of each."""
    position = {i.address: n for n, i in enumerate(code)}
    starts = {0}
    for n, i in enumerate(code):
        if i.target in position:
            starts.add(position[i.target])
        if (i.target is not None or i.ends) and n + 1 < len(code):
            starts.add(n + 1)
    starts = sorted(starts)
    block_at = {start: b for b, start in enumerate(starts)}
    blocks = [(start, end - 1) for start, end in zip(starts, starts[1:] + [len(code)])]
    successors = []
    for first, last in blocks:
        i = code[last]
        next_blocks = [] if i.ends or last + 1 == len(code) else [block_at[last + 1]]
        if i.target in position:
            next_blocks.append(block_at[position[i.target]])
        successors.append(next_blocks)
    # A jump through a register may go to whatever nothing else leads to.
    reached = {0}.union(*successors)
    orphans = [b for b in range(len(blocks)) if b not in reached]
    for b, (_, last) in enumerate(blocks):
        if code[last].mnemonic in ("BRX", "BRXU", "JMX", "s_setpc_b64"):
            successors[b] = successors[b] + orphans
    return blocks, successors


def dominators_of(successors):
    """The immediate dominator of every block that can be reached, and the blocks' order (Cooper, Harvey, Kennedy)."""
    order, seen, stack = [], {0}, [(0, iter(successors[0]))]
    while stack:
        block, rest = stack[-1]
        following = next((b for b in rest if b not in seen), None)
        if following is None:
            order.append(block)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(successors[following])))
    number = {block: n for n, block in enumerate(order)}
    predecessors = collections.defaultdict(list)
    for block in order:
        for following in successors[block]:
            predecessors[following].append(block)
    dominator = {0: 0}
    changed = True
    while changed:
        changed = False
        for block in reversed(order[:-1]):
            found = None
            for other in predecessors[block]:
                if other not in dominator:
                    continue
                a, b = other, found
                while found is not None and a != b:
                    if number[a] < number[b]:
                        a = dominator[a]
                    else:
                        b = dominator[b]
                found = a
            if dominator.get(block) != found:
                dominator[block], changed = found, True
    return dominator, predecessors


def natural_loops(successors):
    """{head: blocks}: where a branch goes back to a block that every way to it has passed."""
    dominator, predecessors = dominators_of(successors)

    def dominates(a, b):
        while b != a and b != 0:
            b = dominator[b]
        return a == b

    loops = collections.defaultdict(set)
    for block in dominator:
        for head in successors[block]:
            if dominates(head, block):
                body, work = loops[head], [block]
                body.add(head)
                while work:
                    b = work.pop()
                    if b not in body:
                        body.add(b)
                        work += predecessors[b]
    return loops


def widest_backward_branch(code):
    """What a kernel whose loops cannot be told (jumps through registers) has instead: the shortest stretch between a branch
    back and its target that holds the most matrix instructions."""
    position = {i.address: n for n, i in enumerate(code)}
    stretches = [code[position[i.target]:n + 1] for n, i in enumerate(code)
                 if i.target in position and i.target <= i.address]
    held = [(sum(is_matrix(i.mnemonic) for i in s), -len(s), s) for s in stretches]
    most = max(held, key=lambda h: h[:2], default=(0, 0, []))
    return most[2] if most[0] else []


def inner_loop(code):
    """Instructions of the inner loop; see the head of this file."""
    blocks, successors = blocks_of(code)
    count = [sum(is_matrix(i.mnemonic) for i in code[first:last + 1]) for first, last in blocks]
    loops = [body for body in natural_loops(successors).values() if any(count[b] for b in body)]
    leaves = [body for body in loops if not any(other < body for other in loops)]
    if not leaves:
        return widest_backward_branch(code)
    body = max(leaves, key=lambda body: (sum(count[b] for b in body), -len(body)))
    return [i for b in sorted(body) for i in code[blocks[b][0]:blocks[b][1] + 1]]


def global_load_width(i):
    """Bytes a lane loads from global memory, into shared memory or registers; None: another instruction."""
    m = i.mnemonic
    if re.match(r"(LDG|LDGSTS)\b", m):
        for bits in (256, 128, 64):
            if f".{bits}" in m:
                return bits // 8
        if re.search(r"\.[US]8\b", m):
            return 1
        return 2 if re.search(r"\.[US]16\b", m) else 4
    if m.startswith("UBLKCP") or m.startswith("UTMALDG"):
        return "bulk"
    found = re.match(r"(global|buffer|flat)_load_(lds_)?(\w+)", m)
    if found:
        kind = found[3]
        width = re.match(r"dwordx(\d)", kind)
        if width:
            return 4 * int(width[1])
        if kind.startswith("dword"):
            return 4
        return 2 if "short" in kind or "16" in kind else 1
    return None


def loads_of(code):
    """{"LDGSTS 16 B": 4, ...}"""
    counts = collections.Counter()
    for i in code:
        width = global_load_width(i)
        if width is None:
            continue
        kind = "LDGSTS" if i.mnemonic.startswith("LDGSTS") else i.mnemonic.split(".")[0]
        found = re.match(r"(global|buffer|flat)_load(_lds)?", i.mnemonic)
        counts[f"{found[0] if found else kind} {width} B" if width != "bulk" else kind] += 1
    return dict(sorted(counts.items()))


def describe(code):
    loop = inner_loop(code)
    matrix = collections.Counter(matrix_name(i.mnemonic) for i in loop if is_matrix(i.mnemonic))
    total = sum(matrix.values())
    useful = [i for i in loop if i.mnemonic not in ("NOP", "s_nop")]
    return {
        "instructions": len(code),
        "loop_instructions": len(useful),
        "matrix": dict(sorted(matrix.items())),
        "others_per_matrix": round((len(useful) - total) / total, 2) if total else None,
        "loop_loads": loads_of(loop),
        "loads": loads_of(code),
    }


# --- NVIDIA ---------------------------------------------------------------------------------------------------------------


def nvidia_occupancy(arch, registers, threads, shared):
    """Resident warps of a multiprocessor."""
    limit = LIMITS[arch]
    warps = threads // 32
    per_warp = -(-registers * 32 // 256) * 256
    # A quarter of the registers belongs to each of the four schedulers.
    by_registers = 4 * (limit.registers // 4 // per_warp) // warps
    by_shared = limit.shared // (-(-shared // 1024) * 1024 + limit.reserved)
    return warps * min(by_registers, by_shared, limit.warps // warps, limit.blocks)


def sass_functions(text):
    """{architecture: {function: [Instruction]}}"""
    functions = collections.defaultdict(dict)
    arch = code = None
    for line in text.splitlines():
        if line.startswith("arch = "):
            arch = line[7:].strip()
        elif "Function :" in line:
            code = functions[arch].setdefault(line.split(":", 1)[1].strip(), [])
        else:
            found = re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+ +)?([A-Z][\w.]*)\s*([^;]*);", line)
            if found and code is not None:
                address, predicate, mnemonic, operands = found.groups()
                target = re.fullmatch(r"(.*?)`?\(?0x([0-9a-f]+)\)?\s*", operands) if mnemonic.startswith("BRA") else None
                always = not predicate and (mnemonic in ("EXIT", "BRX", "BRXU", "JMX", "RET.REL.NODEC", "RET.ABS.NODEC") or
                                            (target is not None and mnemonic == "BRA" and not target[1]))
                code.append(Instruction(int(address, 16), mnemonic, int(target[2], 16) if target else None, always))
    return functions


def read_nvidia(path, tools):
    """Yields (architecture, function, numbers) of the kernels of each architecture in an object file."""
    environment = dict(os.environ, PATH=tools + os.pathsep + os.environ.get("PATH", ""))
    dump = os.path.join(tools, "cuobjdump")
    usage, threads, arch, name = {}, {}, None, None
    for line in output_of(dump, "-elf", "-res-usage", path, env=environment).splitlines():
        if line.startswith("arch = "):
            arch = line[7:].strip()
        elif line.strip().startswith("Function "):
            name = line.strip()[9:].rstrip(":")
        elif name and "REG:" in line:
            usage[arch, name] = {k: int(v) for k, v in re.findall(r"(\w+):(\d+)", line)}
            name = None
    arch = section = None
    pending = False
    for line in output_of(dump, "-elf", path, env=environment).splitlines():
        if line.startswith("arch = "):
            arch = line[7:].strip()
        elif line.startswith(".nv.info."):
            section = line[9:].strip()
        elif "EIATTR_MAX_THREADS" in line:
            pending = True
        elif pending and "Value:" in line:
            x, y, z = (int(v, 16) for v in re.findall(r"0x[0-9a-f]+", line)[:3])
            threads[arch, section], pending = x * y * z, False
    for arch, functions in sass_functions(output_of(dump, "-sass", path, env=environment)).items():
        for function, code in functions.items():
            if (arch, function) not in usage or not any(is_matrix(i.mnemonic) for i in code):
                continue
            use = usage[arch, function]
            yield arch, function, {
                "threads": threads.get((arch, function)),
                "registers": use["REG"],
                "spill": sum(bool(re.match(r"(LDL|STL)\b", i.mnemonic)) for i in code),
                "local_bytes": use["STACK"] + use["LOCAL"],
                "static_shared": use["SHARED"],
                "packed_fma": 0,
                **describe(code),
            }


# --- AMD ------------------------------------------------------------------------------------------------------------------


def amd_occupancy(arch, registers, threads, lds):
    """Resident waves of a compute unit. Blocks are spread over its SIMDs wave by wave."""
    limit = LIMITS[arch]
    waves = threads // 64
    per_simd = min(limit.waves_per_simd, limit.registers // (-(-max(registers, 1) // 8) * 8))
    by_registers = per_simd * limit.simds // waves
    by_lds = limit.lds // (-(-lds // limit.grain) * limit.grain) if lds else by_registers
    return waves * min(by_registers, by_lds)


def read_amd(path, _tools):
    with tempfile.TemporaryDirectory() as folder:
        bundler = llvm_tool("clang-offload-bundler")
        for target in output_of(bundler, "--list", "--type=o", f"--input={path}").split():
            arch = target.rsplit("--", 1)[-1].split(":")[0]
            if not arch.startswith("gfx"):
                continue
            code_object = os.path.join(folder, arch)
            output_of(bundler, "--unbundle", "--type=o", f"--input={path}", f"--targets={target}", f"--output={code_object}")
            yield from read_code_object(arch, code_object)


def read_code_object(arch, path):
    kernels, current = {}, {}
    for line in output_of(llvm_tool("llvm-readelf"), "--notes", path).splitlines():
        if line.startswith("  - "):
            current = {}
        found = re.match(r"  [ -] \.(\w+):\s+(\S+)$", line)
        if found:
            current[found[1]] = found[2]
            if found[1] == "name":
                kernels[found[2]] = current
    functions, code, starts = {}, None, {}
    for line in output_of(llvm_tool("llvm-objdump"), "-d", path).splitlines():
        label = re.match(r"([0-9a-f]+) <([^>]+)>:", line)
        if label:
            code = functions.setdefault(label[2], [])
            starts[label[2]] = int(label[1], 16)
            continue
        found = re.match(r"\t(\w+) ?(.*?)\s*// ([0-9A-F]+):(.*)", line)
        if found and code is not None:
            target = re.search(r"<([^+>]+)(?:\+0x([0-9a-f]+))?>", found[4]) if "branch" in found[1] else None
            where = starts.get(target[1], 0) + int(target[2] or "0", 16) if target else None
            mnemonic = found[1].replace("_load_", "_load_lds_", 1) if found[2].endswith(" lds") else found[1]
            code.append(Instruction(int(found[3], 16), mnemonic, where, found[1] in ("s_branch", "s_endpgm", "s_setpc_b64")))
    for name, meta in kernels.items():
        code = functions.get(name, [])
        if not any(is_matrix(i.mnemonic) for i in code):  # empty where the chip lacks the atom
            continue
        yield arch, name, {
            "threads": int(meta["max_flat_workgroup_size"]),
            "registers": int(meta["vgpr_count"]),  # with the accumulation registers behind them
            "scalar_registers": int(meta["sgpr_count"]),
            "spill": int(meta["vgpr_spill_count"]),
            "scalar_spill": int(meta["sgpr_spill_count"]),  # into lanes of vector registers, not to memory
            "local_bytes": int(meta["private_segment_fixed_size"]),
            "static_shared": int(meta["group_segment_fixed_size"]),
            "packed_fma": sum(i.mnemonic.startswith("v_pk_fma_f32") for i in code),
            **describe(code),
        }


# --- a build folder -------------------------------------------------------------------------------------------------------


def rows_of(list_file):
    """The rows of a list of instances, as they are written."""
    with open(os.path.join(ROOT, list_file), encoding="utf-8") as text:
        return [line.strip().rstrip(",") for line in text if line.startswith("    instance::")]


def short_name(row):
    return re.sub(r"\binstance::|KvKind::k", "", row)


def source_row(build, path):
    """(list file, number, text) of an object's row, by the first line of the source that it was generated from."""
    stem = os.path.basename(path).split(".")[0]
    for source in glob.glob(os.path.join(glob.escape(build), "**", stem + ".*"), recursive=True):
        if source.endswith((".cu", ".hip")) and os.path.basename(os.path.dirname(source)) in path:
            with open(source, encoding="utf-8") as text:
                found = re.search(r"[Rr]ow (\d+) of (\S+\.hpp)", text.read())
            if found:
                rows = rows_of(found[2])
                if int(found[1]) < len(rows):
                    return found[2], int(found[1]), short_name(rows[int(found[1])])
    fail(f"no generated source names the row of {path}; it would say 'Row N of <list>.hpp'")


def gemm_name(function):
    """A matrix product's kernel as its template arguments have it: gemm_native(Nvfp4, 64)."""
    found = re.search(r"4gemmILb([01])ELi(\d+)ELb([01])E", function)  # cuda/gemm.cu
    if found:
        return f"gemm({('Mxfp4', 'Nvfp4')[int(found[1])]}, {8 * int(found[2])}, {('as it is', 'paired')[int(found[3])]})"
    found = re.search(r"8gemm_fewILb([01])ELb([01])E", function)  # cuda/gemm_sm90.cu
    if found:
        return f"gemm_few({('Mxfp4', 'Nvfp4')[int(found[1])]}, {('8', '2')[int(found[2])]})"
    found = re.search(r"12gemm_sixteenILb([01])E", function)
    if found:
        return f"gemm_sixteen({('Mxfp4', 'Nvfp4')[int(found[1])]})"
    found = re.search(r"9gemm_manyILb([01])ELi(\d+)E", function)
    if found:
        return f"gemm_many({('Mxfp4', 'Nvfp4')[int(found[1])]}, {found[2]})"
    found = re.search(r"11gemm_nativeILb([01])ELi(\d+)E", function)  # cuda/gemm_native.cu
    if found:
        return f"gemm_native({('Mxfp4', 'Nvfp4')[int(found[1])]}, {8 * int(found[2])})"
    found = re.search(r"4gemmILNS\w*8GemmPathE(\d)ELi(\d+)E", function)  # hip/gemm.hip
    if found:
        return f"{('gemm_native(Mxfp4', 'gemm(Mxfp4', 'gemm(Nvfp4')[int(found[1])]}, {16 * int(found[2])})"
    fail(f"no name is known for the matrix product {function}")


def collect(build, given_tools):
    """{architecture: {instance: numbers}} of everything that was built."""
    if not os.path.isdir(build):
        fail(f"{build} is no folder; build first, for example: cmake --preset all && cmake --build --preset all")
    def objects(ending):
        return [path for name in ("attend*", "gemm", "gemm_native", "gemm_sm90")
                for path in glob.glob(os.path.join(glob.escape(build), "**", name + ending), recursive=True)]

    nvidia = objects(".cu.o")
    amd = objects(".hipfb")
    tools = cuda_tools(given_tools) if nvidia else None
    launches = load_launches(build)
    table = collections.defaultdict(dict)
    for paths, read in ((nvidia, read_nvidia), (amd, read_amd)):
        for path in sorted(paths):
            is_gemm = os.path.basename(path).startswith("gemm")
            list_file, number, name = ("gemm", None, None) if is_gemm else source_row(build, path)
            for arch, function, numbers in read(path, tools):
                row = gemm_name(function) if is_gemm else name
                finish(family(arch), numbers, launch_of(launches, list_file, family(arch), row if is_gemm else number))
                table[family(arch)][row] = numbers
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
