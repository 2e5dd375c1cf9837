"""Kernels with matrix instructions in compiled objects, NVIDIA's and AMD's: registers, spills, memory, and what their inner loops hold.

The inner loop is the natural loop (of the control flow graph) with the most matrix instructions among those that hold no
other loop with any. It has everything that a way from its head to its head can pass, also what is rarely taken. Of AMD's
kernels it is the loop with the most of its own, less the loops with any that it holds: gemm_terms has one for what is rarely left.

NVIDIA objects need cuobjdump and nvdisasm (of a CUDA Toolkit, or of the wheels nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm), AMD's
need clang-offload-bundler, llvm-readelf and llvm-objdump. Python's standard library is all else it takes.
"""
import collections
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile

# `target`: of a branch. `ends`: nothing is executed after it but its target.
Instruction = collections.namedtuple("Instruction", "address mnemonic target ends")


def fail(message):
    sys.exit(f"isa_gates: {message}")


def output_of(*command, **kwargs):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)
    if done.returncode != 0:
        fail(f"{' '.join(command)} failed: {done.stderr.strip() or done.returncode}")
    return done.stdout


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
        folders += [os.path.join(folder, "nvidia/cu13/bin"), os.path.join(folder, "triton/backends/nvidia/bin")]
    for folder in folders:
        if folder and all(os.access(os.path.join(folder, t), os.X_OK) for t in ("cuobjdump", "nvdisasm")):
            return folder
    fail("cuobjdump and nvdisasm are needed to read NVIDIA objects: install them, or name their folder with --cuda-tools "
         "or FP4PA_CUDA_TOOLS (the wheels nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm have them under nvidia/cu13/bin)")


# --- loops and what they hold ---------------------------------------------------------------------------------------------

@functools.lru_cache(maxsize=None)  # some hundred mnemonics, millions of instructions
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


def inner_loop(code, innermost=True):
    """Instructions of the inner loop; see the head of this file."""
    blocks, successors = blocks_of(code)
    count = [sum(is_matrix(i.mnemonic) for i in code[first:last + 1]) for first, last in blocks]
    loops = [body for body in natural_loops(successors).values() if any(count[b] for b in body)]
    inside = [[other for other in loops if other < body] for body in loops]
    own = [body.difference(*others) for body, others in zip(loops, inside) if not (innermost and others)]
    if not own:
        return widest_backward_branch(code)
    body = max(own, key=lambda body: (sum(count[b] for b in body), -len(body)))
    return [i for b in sorted(body) for i in code[blocks[b][0]:blocks[b][1] + 1]]


def global_load_width(m):
    """Bytes a lane loads from global memory, into shared memory or registers; None: another instruction."""
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
    for mnemonic, times in collections.Counter(i.mnemonic for i in code).items():
        width = global_load_width(mnemonic)
        if width is None:
            continue
        kind = "LDGSTS" if mnemonic.startswith("LDGSTS") else mnemonic.split(".")[0]
        found = re.match(r"(global|buffer|flat)_load(_lds)?", mnemonic)
        counts[f"{found[0] if found else kind} {width} B" if width != "bulk" else kind] += times
    return dict(sorted(counts.items()))


def describe(code, innermost=True):
    loop = inner_loop(code, innermost)
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


INSTRUCTION = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+ +)?([A-Z][\w.]*)\s*([^;]*);")


def sass_functions(text):
    """{architecture: {function: [Instruction]}}"""
    functions = collections.defaultdict(dict)
    arch = code = None
    for line in text.splitlines():
        if line.startswith("arch = "):
            arch = line[7:].strip()
        elif "Function :" in line:
            code = functions[arch].setdefault(line.split(":", 1)[1].strip(), [])
        elif code is not None and ";" in line:  # every other line holds the second half of an instruction's bits alone
            found = INSTRUCTION.match(line)
            if found:
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
    for line in output_of(dump, "-res-usage", path, env=environment).splitlines():
        if line.startswith("arch = "):
            arch = line[7:].strip()
        elif line.strip().startswith("Function "):
            name = line.strip()[9:].rstrip(":")
        elif name and "REG:" in line:
            usage[arch, name] = {k: int(v) for k, v in re.findall(r"(\w+):(\d+)", line)}
            name = None
    # Nearly all of this output is the bytes of debug sections.
    lines = re.compile(r"^(?:arch = (.*)|\.nv\.info\.(.*)|\s+Attribute:\s+EIATTR_MAX_THREADS\n.*\n\s+Value:(.*))$", re.MULTILINE)
    arch = section = None
    for new_arch, new_section, value in lines.findall(output_of(dump, "-elf", path, env=environment)):
        if new_arch:
            arch = new_arch.strip()
        elif new_section:
            section = new_section.strip()
        else:
            x, y, z = (int(v, 16) for v in re.findall(r"0x[0-9a-f]+", value)[:3])
            threads[arch, section] = x * y * z
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
            **describe(code, innermost=False),
        }
