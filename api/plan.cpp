// plan and run: validate, ask the back end for its choice, and later call it with that choice.
#include <cstring>

#include "api/backend.hpp"
#include "api/error.hpp"
#include "api/log.hpp"
#include "api/plan_access.hpp"
#include "api/select.hpp"
#include "api/validate.hpp"
#include "api/validate_attention.hpp"
#include "api/workspace.hpp"
#include "fp4pa/attention.hpp"

namespace fp4pa {

/// The one place that fills a plan.
struct PlanAccess {
  static void fill(AttentionPlan& plan, const AttentionConfig& config, const api::PlanChoice& choice,
                   std::int32_t backend_index) {
    plan.config_ = config;
    plan.config_.backend = nullptr;  // the caller's string need not outlive the call; the index says which it was
    plan.backend_index_ = backend_index;
    plan.backend_name_ = api::backends()[static_cast<std::size_t>(backend_index)]->name;
    plan.workspace_bytes_ = choice.workspace_bytes;
    plan.num_workers_ = choice.num_workers;
    plan.tile_rows_ = choice.tile_rows;
    plan.variant_ = choice.variant;
    plan.device_[0] = choice.device.architecture;
    plan.device_[1] = choice.device.multiprocessors;
    plan.device_[2] = choice.device.shared_bytes;
  }
  static const api::Backend* backend(const AttentionPlan& plan) {
    return plan.backend_index_ < 0 ? nullptr : api::backends()[static_cast<std::size_t>(plan.backend_index_)];
  }
  static api::PlanChoice choice(const AttentionPlan& plan) {
    return {plan.num_workers_, plan.tile_rows_, plan.variant_, plan.workspace_bytes_,
            {plan.device_[0], plan.device_[1], plan.device_[2]}};
  }
};

Status plan(const AttentionConfig& config, AttentionPlan* plan) noexcept {
  if (plan == nullptr) return api::fail(Status::kNullPointer, "plan is null; it must point to an AttentionPlan");
  FP4PA_RETURN_IF_FAILED(api::validate(config));
  const api::Backend* backend = nullptr;
  std::int32_t index = -1;
  FP4PA_RETURN_IF_FAILED(api::find_backend(config.backend, &backend, &index));
  if (backend->plan == nullptr || backend->run == nullptr) {
    return api::fail(Status::kBackendUnavailable, "back end '%s' has no attention in this build", backend->name);
  }
  api::PlanChoice choice;
  FP4PA_RETURN_IF_FAILED(backend->plan(config, &choice));
  PlanAccess::fill(*plan, config, choice, index);
  char kernel[128] = "";
  if (backend->describe != nullptr) backend->describe(choice.variant, kernel, sizeof kernel);
  api::log(api::LogLevel::kInfo, "plan on %s: %d workers, %d rows a tile, workspace %zu bytes%s%s", backend->name, choice.num_workers,
           choice.tile_rows, choice.workspace_bytes, kernel[0] != '\0' ? "; kernel for " : "", kernel);
  return Status::kOk;
}

Status run(const AttentionPlan& plan, const AttentionArgs& args) noexcept {
  const api::Backend* backend = PlanAccess::backend(plan);
  if (backend == nullptr) return api::fail(Status::kPlanMismatch, "the plan is empty; call fp4pa::plan first");
  if (const Status s = api::validate(plan.config(), plan.workspace_bytes(), args, api::runs_on_host(*backend)); s != Status::kOk) {
    return s;
  }
  if (args.batch == 0) return Status::kOk;
  const api::PlanChoice choice = PlanAccess::choice(plan);
  return backend->run({plan.config(), choice, args});
}

namespace api {

void* memory_to_come() noexcept {
  alignas(kWorkspaceAlignment) static unsigned char memory[kWorkspaceAlignment];
  return memory;
}

const Backend* backend_of(const AttentionPlan& plan) noexcept { return PlanAccess::backend(plan); }

bool is_native(const AttentionPlan& plan) noexcept {
  const Backend* const backend = PlanAccess::backend(plan);
  return backend != nullptr && backend->native != nullptr && backend->native(PlanAccess::choice(plan).variant);
}

bool decodes_aside(const AttentionPlan& plan) noexcept {
  const Backend* const backend = PlanAccess::backend(plan);
  return backend != nullptr && backend->decodes_aside != nullptr && backend->decodes_aside(PlanAccess::choice(plan).variant);
}

Status validate_run(const AttentionPlan& plan, const KvCacheDesc& cache, const AttentionArgs& args, std::int64_t q_tokens) noexcept {
  FP4PA_RETURN_IF_FAILED(validate_description(cache));
  FP4PA_RETURN_IF_FAILED(validate(plan.config(), plan.workspace_bytes(), args));
  return validate_tokens(plan.config(), args, q_tokens);
}

Status run_on(const AttentionPlan& plan, const KvCacheDesc& cache, const AttentionArgs& args,
              const core::QueryScales& q_scales) noexcept {
  if (args.batch == 0) return Status::kOk;
  AttentionConfig config = plan.config();
  config.cache = cache;
  const PlanChoice choice = PlanAccess::choice(plan);
  return PlanAccess::backend(plan)->run({config, choice, args, q_scales});
}

}  // namespace api

}  // namespace fp4pa
