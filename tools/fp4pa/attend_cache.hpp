// The caches and page tables of one `attend` variant, filled through the public append calls.
#pragma once

#include <vector>

#include "fp4pa/attention.hpp"
#include "tools/fp4pa/attend_run.hpp"

namespace fp4pa::tool {

class FilledCache {
 public:
  /// Allocates, poisons and fills the pages of `settings.batch` copies of the file's sequence.
  FilledCache(Device& device, const AttendSettings& settings, const AttendInput& input, const Variant& variant);

  /// Sets the caches and the two-tier numbers of `config`.
  void describe(AttentionConfig& config) const;
  /// Points `args` at the page tables in device memory.
  void describe(AttentionArgs& args) const;
  /// A copy in host memory, for the reference. `host_args` gets tables there, which live as long as this object.
  struct HostCopy {
    PagedCache old_tier;
    PagedCache recent;
  };
  [[nodiscard]] HostCopy host_copy(Device& device, Device& host) const;
  void describe_host(const HostCopy& copy, AttentionConfig& config, AttentionArgs& args) const;

  [[nodiscard]] double bytes_per_token() const;
  [[nodiscard]] double append_seconds() const noexcept { return append_seconds_; }

 private:
  void append_one_tier(Device& device, const AttendSettings& settings, const AttendInput& input);
  void append_two_tiers(Device& device, const AttendSettings& settings, const AttendInput& input);

  std::int32_t length_ = 0;
  TwoTierDesc tiers_;  // old_tier is the only one when window_tokens == 0
  PagedCache old_tier_;
  PagedCache recent_;
  std::int32_t pages_per_sequence_ = 0;
  std::vector<std::int32_t> table_;         // [batch, pages_per_sequence_]
  std::vector<std::int32_t> recent_table_;  // [batch, ring_pages]
  Buffer device_table_;
  Buffer device_recent_table_;
  double append_seconds_ = 0.0;
};

}  // namespace fp4pa::tool
