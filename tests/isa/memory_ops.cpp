// Scalar, vector and LDS memory. Source: CDNA4 ISA 8, 10, 11.
//
// What a load brings is taken when it is issued, and arrives when the wave waits for it (wave.hpp).
#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "tests/isa/wave.hpp"

namespace isa {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

template <int kWords>
void scalar_load(Wave& w, const Instruction& i) {
  const Operand& to = i.operand[0];
  if (to.count != kWords) refuse(i, "the destination's size does not fit");
  // Allowed, but a revision of an open emulator loses it: kernels do without (docs/gfx950.md).
  if (to.index == kVcc || to.index == kVcc + 1) refuse(i, "a load to VCC");
  u64 address = w.scalar64(i.operand[1].index) + static_cast<std::int64_t>(i.offset);
  const Operand& offset = i.operand[2];
  address += offset.kind == OperandKind::kLiteral ? offset.literal : u64{w.scalar[offset.index]};
  if (address % 4 != 0) refuse(i, "an address is not aligned");  // its low bits would be dropped
  w.block->memory->check(address, 4 * kWords, false);
  std::array<u32, kWords> words;
  std::memcpy(words.data(), reinterpret_cast<const void*>(address), sizeof words);
  for (int k = 0; k < kWords; ++k) w.scalar[to.index + k] = kPoison;
  w.local.push_back({[&w, at = to.index, words] {
                       for (int k = 0; k < kWords; ++k) w.scalar[at + k] = words[static_cast<std::size_t>(k)];
                     },
                     true});
}

/// Per-lane addresses of a global, flat or scratch-less access: a pair of registers, or a scalar base and 32 bits.
void addresses(const Wave& w, const Instruction& i, int k, Lanes64& out) {
  const Operand& base = i.operand[static_cast<std::size_t>(k)];
  const Operand& scalar = i.operand[static_cast<std::size_t>(i.num_operands - 1)];
  const bool has_scalar = scalar.kind == OperandKind::kScalar;
  for (int l = 0; l < kLanes; ++l) {
    u64 address = w.vector[base.index][l];
    if (has_scalar) {
      address += w.scalar64(scalar.index);
    } else {
      address |= u64{w.vector[base.index + 1][l]} << 32;
    }
    out[l] = address + static_cast<u64>(std::int64_t{i.offset});
  }
}

struct Loaded {
  u64 exec;
  Lanes words[4];
};
void poison(Wave& w, int index, int words) {
  for (int k = 0; k < words; ++k) {
    for (int l = 0; l < kLanes; ++l) {
      if (w.active(l)) w.vector[index + k][l] = kPoison;
    }
  }
}
std::function<void()> landing(Wave& w, int index, int words, const std::shared_ptr<Loaded>& loaded) {
  return [&w, index, words, loaded] {
    for (int k = 0; k < words; ++k) {
      for (int l = 0; l < kLanes; ++l) {
        if ((loaded->exec >> l & 1) != 0) w.vector[index + k][l] = loaded->words[k][l];
      }
    }
  };
}

template <int kBytes, bool kFlat = false>
void global_load(Wave& w, const Instruction& i) {
  constexpr int kWords = (kBytes + 3) / 4;
  const Operand& to = i.operand[0];
  if (to.count != kWords) refuse(i, "the destination's size does not fit");
  Lanes64 from;
  addresses(w, i, 1, from);
  auto loaded = std::make_shared<Loaded>();
  loaded->exec = w.exec();
  for (int l = 0; l < kLanes; ++l) {
    if (!w.active(l)) continue;
    if (from[l] % std::min(kBytes, 4) != 0) refuse(i, "an address is not aligned");
    w.block->memory->check(from[l], kBytes, false);
    u32 words[4] = {};
    std::memcpy(words, reinterpret_cast<const void*>(from[l]), kBytes);
    for (int k = 0; k < kWords; ++k) loaded->words[k][l] = words[k];
  }
  poison(w, to.index, kWords);
  w.vector_memory.push_back(landing(w, to.index, kWords, loaded));
  if (kFlat) w.local.push_back({[] {}, false});  // counted twice
}

/// @tparam kShift  bits of the data's first register that are not stored (d16_hi)
template <int kBytes, int kShift = 0>
void global_store(Wave& w, const Instruction& i) {
  const Operand& data = i.operand[1];
  if (data.count != (kBytes + 3) / 4) refuse(i, "the data's size does not fit");
  Lanes64 to;
  addresses(w, i, 0, to);
  for (int l = 0; l < kLanes; ++l) {
    if (!w.active(l)) continue;
    if (to[l] % std::min(kBytes, 4) != 0) refuse(i, "an address is not aligned");
    w.block->memory->check(to[l], kBytes, true);
    u32 words[4];
    for (int k = 0; k < (kBytes + 3) / 4; ++k) words[k] = w.vector[data.index + k][l] >> kShift;
    std::memcpy(reinterpret_cast<void*>(to[l]), words, kBytes);
  }
  w.vector_memory.push_back([] {});
}

/// Without a result. Blocks may run side by side.
void global_atomic_umax(Wave& w, const Instruction& i) {
  if (i.num_operands != 3 || i.operand[1].count != 1) refuse(i, "only the form without a result is known");
  Lanes64 to;
  addresses(w, i, 0, to);
  for (int l = 0; l < kLanes; ++l) {
    if (!w.active(l)) continue;
    w.block->memory->check(to[l], 4, true);
    const std::atomic_ref<u32> at(*reinterpret_cast<u32*>(to[l]));
    const u32 value = w.vector[i.operand[1].index][l];
    for (u32 seen = at.load(); seen < value && !at.compare_exchange_weak(seen, value);) {
    }
  }
  w.vector_memory.push_back([] {});
}

void check_lds(const Wave& w, const Instruction& i, u64 address, int bytes) {
  if (address + static_cast<u64>(bytes) > w.block->lds.size()) {
    refuse(i, "LDS address " + std::to_string(address) + " of " + std::to_string(w.block->lds.size()) + " bytes");
  }
  if (address % static_cast<u64>(std::min(bytes, 16)) != 0) refuse(i, "LDS address " + std::to_string(address) + " is not aligned");
}

/// 16 bytes a lane to LDS at m0 + 16 lane.
void load_to_lds(Wave& w, const Lanes64& from) {
  struct Copy {
    u32 at;
    std::array<std::uint8_t, 16> bytes;
  };
  auto copies = std::make_shared<std::vector<Copy>>();
  for (int l = 0; l < kLanes; ++l) {
    if (!w.active(l)) continue;
    Copy copy{(w.scalar[kM0] & 0x3fffcu) + 16u * static_cast<u32>(l), {}};
    w.block->memory->check(from[l], 16, false);
    if (copy.at + 16 > w.block->lds.size()) throw std::runtime_error("a load to LDS ends behind the block's LDS");
    std::memcpy(copy.bytes.data(), reinterpret_cast<const void*>(from[l]), 16);
    std::memset(w.block->lds.data() + copy.at, 0xba, 16);  // it may come at once: who still reads what was there is too late
    copies->push_back(copy);
  }
  w.vector_memory.push_back([&w, copies] {
    for (const Copy& c : *copies) std::memcpy(w.block->lds.data() + c.at, c.bytes.data(), 16);
  });
}
void global_load_lds(Wave& w, const Instruction& i) {
  Lanes64 from;
  addresses(w, i, 0, from);
  load_to_lds(w, from);
}
/// "buffer_load_dwordx4 v[..], s[..], 0 idxen offen lds": a record's index and the offset in it, of a buffer of records.
void buffer_load_lds(Wave& w, const Instruction& i) {
  if (i.text.find("idxen offen lds") == std::string::npos || i.offset != 0) refuse(i, "only indexed loads to LDS are known");
  const Operand& address = i.operand[0];
  const Operand& resource = i.operand[1];
  if (i.operand[2].kind != OperandKind::kLiteral || i.operand[2].literal != 0) refuse(i, "a scalar offset");
  const u64 base = w.scalar64(resource.index) & 0xffffffffffffu;
  const u32 stride = w.scalar[resource.index + 1] >> 16 & 0x3fffu;
  if (w.scalar[resource.index + 1] >> 30 != 0 || (w.scalar[resource.index + 3] & 0x00800000u) != 0) refuse(i, "a swizzled buffer");
  Lanes64 from = {};
  for (int l = 0; l < kLanes; ++l) {
    if (!w.active(l)) continue;
    const u32 index = w.vector[address.index][l];
    if (index >= w.scalar[resource.index + 2]) refuse(i, "a record that is none of the buffer's");
    from[l] = base + u64{index} * stride + w.vector[address.index + 1][l];
  }
  load_to_lds(w, from);
}

/// Reads of one or two places; `bytes` of each, kStride bytes an offset unit of the second form.
template <int kBytes, int kPlaces, int kStride>
void lds_read(Wave& w, const Instruction& i) {
  constexpr int kWords = (kBytes + 3) / 4;
  const Operand& to = i.operand[0];
  if (to.count != kWords * kPlaces) refuse(i, "the destination's size does not fit");
  auto loaded = std::make_shared<Loaded>();
  loaded->exec = w.exec();
  for (int l = 0; l < kLanes; ++l) {
    if (!w.active(l)) continue;
    for (int p = 0; p < kPlaces; ++p) {
      const int offset = kPlaces == 1 ? i.offset : kStride * (p == 0 ? i.offset0 : i.offset1);
      const u64 at = u64{w.vector[i.operand[1].index][l]} + static_cast<u64>(offset);
      check_lds(w, i, at, kBytes);
      u32 words[4] = {};
      std::memcpy(words, w.block->lds.data() + at, kBytes);
      for (int k = 0; k < kWords; ++k) loaded->words[p * kWords + k][l] = words[k];
    }
  }
  poison(w, to.index, kWords * kPlaces);
  w.local.push_back({landing(w, to.index, kWords * kPlaces, loaded), false});
}
template <int kBytes, int kPlaces, int kStride>
void lds_write(Wave& w, const Instruction& i) {
  constexpr int kWords = (kBytes + 3) / 4;
  for (int l = 0; l < kLanes; ++l) {
    if (!w.active(l)) continue;
    for (int p = 0; p < kPlaces; ++p) {
      const Operand& data = i.operand[static_cast<std::size_t>(p + 1)];
      if (data.count != kWords) refuse(i, "the data's size does not fit");
      const int offset = kPlaces == 1 ? i.offset : kStride * (p == 0 ? i.offset0 : i.offset1);
      const u64 at = u64{w.vector[i.operand[0].index][l]} + static_cast<u64>(offset);
      check_lds(w, i, at, kBytes);
      u32 words[4];
      for (int k = 0; k < kWords; ++k) words[k] = w.vector[data.index + k][l];
      std::memcpy(w.block->lds.data() + at, words, kBytes);
    }
  }
  w.local.push_back({[] {}, false});
}
/// Among 16 lanes with 64 bits each: element n of lane l comes from lane n (16 / e) + l / e, its element l % e, e elements a lane.
template <int kBits>
void lds_read_transposed(Wave& w, const Instruction& i) {
  if (w.exec() != ~u64{0}) refuse(i, "a lane is away");
  constexpr int kElements = 64 / kBits;
  u64 in[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    const u64 at = u64{w.vector[i.operand[1].index][l]} + static_cast<u64>(i.offset);
    check_lds(w, i, at, 8);
    std::memcpy(&in[l], w.block->lds.data() + at, 8);
  }
  auto loaded = std::make_shared<Loaded>();
  loaded->exec = w.exec();
  for (int l = 0; l < kLanes; ++l) {
    u64 out = 0;
    for (int n = 0; n < kElements; ++n) {
      const u64 from = in[l / 16 * 16 + n * (16 / kElements) + l % 16 / kElements];
      out |= (from >> (kBits * (l % kElements)) & ((u64{1} << kBits) - 1)) << (kBits * n);
    }
    loaded->words[0][l] = static_cast<u32>(out);
    loaded->words[1][l] = static_cast<u32>(out >> 32);
  }
  poison(w, i.operand[0].index, 2);
  w.local.push_back({landing(w, i.operand[0].index, 2, loaded), false});
}
void bpermute(Wave& w, const Instruction& i) {
  Lanes address, data;
  fetch(w, i, 1, address);
  fetch(w, i, 2, data);
  auto loaded = std::make_shared<Loaded>();
  loaded->exec = w.exec();
  for (int l = 0; l < kLanes; ++l) {
    const int from = static_cast<int>((address[l] + static_cast<u32>(i.offset)) / 4 % 64);
    loaded->words[0][l] = w.active(from) ? data[from] : 0;
  }
  poison(w, i.operand[0].index, 1);
  w.local.push_back({landing(w, i.operand[0].index, 1, loaded), false});
}

}  // namespace

Handler memory_handler(const std::string& name) {
  static const std::unordered_map<std::string, Handler> kTable = {
      {"s_load_dword", scalar_load<1>},
      {"s_load_dwordx2", scalar_load<2>},
      {"s_load_dwordx4", scalar_load<4>},
      {"s_load_dwordx8", scalar_load<8>},
      {"s_load_dwordx16", scalar_load<16>},
      {"global_load_ubyte", global_load<1>},
      {"global_load_ushort", global_load<2>},
      {"global_load_dword", global_load<4>},
      {"global_load_dwordx2", global_load<8>},
      {"global_load_dwordx3", global_load<12>},
      {"global_load_dwordx4", global_load<16>},
      {"flat_load_dword", global_load<4, true>},
      {"global_load_lds_dwordx4", global_load_lds},
      {"buffer_load_dwordx4", buffer_load_lds},
      {"global_atomic_umax", global_atomic_umax},
      {"global_store_byte", global_store<1>},
      {"global_store_short", global_store<2>},
      {"global_store_short_d16_hi", global_store<2, 16>},
      {"global_store_dword", global_store<4>},
      {"global_store_dwordx2", global_store<8>},
      {"global_store_dwordx3", global_store<12>},
      {"global_store_dwordx4", global_store<16>},
      {"ds_read_u8", lds_read<1, 1, 0>},
      {"ds_read_u16", lds_read<2, 1, 0>},
      {"ds_read_b32", lds_read<4, 1, 0>},
      {"ds_read_b64", lds_read<8, 1, 0>},
      {"ds_read_b128", lds_read<16, 1, 0>},
      {"ds_read2_b32", lds_read<4, 2, 4>},
      {"ds_read2_b64", lds_read<8, 2, 8>},
      {"ds_read2st64_b32", lds_read<4, 2, 256>},
      {"ds_read2st64_b64", lds_read<8, 2, 512>},
      {"ds_write_b8", lds_write<1, 1, 0>},
      {"ds_write_b16", lds_write<2, 1, 0>},
      {"ds_write_b32", lds_write<4, 1, 0>},
      {"ds_write_b64", lds_write<8, 1, 0>},
      {"ds_write_b128", lds_write<16, 1, 0>},
      {"ds_write2_b32", lds_write<4, 2, 4>},
      {"ds_write2_b64", lds_write<8, 2, 8>},
      {"ds_write2st64_b32", lds_write<4, 2, 256>},
      {"ds_write2st64_b64", lds_write<8, 2, 512>},
      {"ds_read_b64_tr_b4", lds_read_transposed<4>},
      {"ds_read_b64_tr_b8", lds_read_transposed<8>},
      {"ds_read_b64_tr_b16", lds_read_transposed<16>},
      {"ds_bpermute_b32", bpermute},
  };
  const auto found = kTable.find(name);
  return found == kTable.end() ? nullptr : found->second;
}

}  // namespace isa
