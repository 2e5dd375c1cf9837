// See warp_memory.hpp.
#include "backends/emulator/warp_memory.hpp"

#include <cstring>
#include <utility>

namespace fp4pa::emulator {

Access WarpMemory::access(int lane, const Site& at) {
  return {block_.turns().barriers(), warp_epoch_, site_number(at), static_cast<std::uint8_t>(warp_), static_cast<std::uint8_t>(lane)};
}

void WarpMemory::block_barrier(const Site& at) {
  block_.turns().barrier(warp_, at);
  ++warp_epoch_;
}

void WarpMemory::store(int lane, std::uint32_t offset, std::uint32_t bytes, const void* value, const Site& at) {
  const Access now = access(lane, at);
  if (aligned(offset, bytes, now)) block_.write(offset, bytes, value, now);
  if (counts_banks()) log_.add(now.site, lane, offset, static_cast<int>(bytes));
}

void WarpMemory::load(int lane, std::uint32_t offset, std::uint32_t bytes, void* value, const Site& at) {
  const Access now = access(lane, at);
  load_row(offset, bytes, bytes, value, now);
  if (counts_banks()) log_.add(now.site, lane, offset, static_cast<int>(bytes));
}

void WarpMemory::load_row(std::uint32_t offset, std::uint32_t bytes, std::uint32_t alignment, void* value, const Access& now) {
  std::memset(value, kPoison, bytes);
  if (aligned(offset, alignment, now)) block_.read(offset, bytes, value, now);
}

void WarpMemory::check_global(const void* from, std::uint32_t bytes, const Site& at) {
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  if (address % bytes != 0) (void)aligned(address, bytes, access(kAllLanes, at));
}

void WarpMemory::copy(int lane, std::uint32_t to, std::uint32_t bytes, const void* from, bool valid, const Site& at) {
  const Access now = access(lane, at);
  const auto source = reinterpret_cast<std::uintptr_t>(from);
  if (!aligned(to, bytes, now) || (valid && !aligned(source, bytes, now))) return;
  if (block_.issue_copy(to, bytes, now)) open_.push_back({to, bytes, valid ? from : nullptr, now});
}

void WarpMemory::commit_copies() {
  groups_.push_back(std::move(open_));
  open_.clear();
}

void WarpMemory::wait_for_copies(int newest, const Site& at) {
  while (groups_.size() > static_cast<std::size_t>(newest)) {
    for (const Copy& c : groups_.front()) block_.land_copy(c.to, c.bytes, c.from, access(c.issued.lane, at));
    groups_.pop_front();
  }
}

void WarpMemory::end_region() {
  log_.each_instruction([&](std::uint16_t site, int bytes, const std::uint32_t* offsets) { count(site, bytes, offsets); });
}

void WarpMemory::count_collective(const Site& at, int bytes, const std::uint32_t* offset) {
  if (counts_banks()) count(site_number(at), bytes, offset);
}

void WarpMemory::end() {
  commit_copies();
  for (const auto& group : groups_) {
    for (const Copy& c : group) block_.report(FindingKind::kCopyNeverLanded, c.issued, c.to);
  }
  groups_.clear();
  for (std::size_t site = 0; site < banks_.size(); ++site) {
    if (banks_[site].instructions != 0) block_.watch().banks->add(block_.site(static_cast<std::uint16_t>(site)), banks_[site]);
  }
  banks_.clear();
}

std::uint16_t WarpMemory::site_number(const Site& at) {
  const auto hash = (reinterpret_cast<std::uintptr_t>(at.file_name()) >> 3) * 31 + at.line() * 7 + at.column();
  Known& known = known_[hash % std::size(known_)];
  if (known.file != at.file_name() || known.line != at.line() || known.column != at.column()) {
    known = {at.file_name(), at.line(), at.column(), block_.site_number(at)};
  }
  return known.number;
}

bool WarpMemory::aligned(std::uint64_t address, std::uint32_t bytes, const Access& now) const {
  if (address % bytes == 0) return true;
  block_.report(FindingKind::kMisaligned, now, static_cast<std::int64_t>(address));
  return false;
}

void WarpMemory::count(std::uint16_t site, int bytes, const std::uint32_t* offsets) {
  if (site >= banks_.size()) banks_.resize(site + std::size_t{1});
  banks_[site] += count_banks(rule_, lanes_, bytes, offsets);
}

}  // namespace fp4pa::emulator
