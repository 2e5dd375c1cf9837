#include "fp4pa/fp4pa.hpp"
#include "tests/gpu/direct/calls.hpp"

namespace fp4pa::direct_test {
namespace {

class Linear final : public Call {
 public:
  static constexpr std::int64_t kRows = 270;  // of W

  Linear(BlockFormat format, ActivationForm activations, std::int64_t m, std::int64_t k)
      : format_(format),
        m_(m),
        k_(k),
        w_(static_cast<std::size_t>(kRows * k)),
        codes_(fp4_weight_code_bytes(format, kRows, k)),
        scales_(fp4_weight_scale_bytes(format, ScaleLayout::kLinear, kRows, k)),
        globals_(1),
        x_(static_cast<std::size_t>(m * k)),
        bias_(static_cast<std::size_t>(kRows)),
        out_(static_cast<std::size_t>(m * kRows)) {
    args_.x = x_.data();
    args_.x_dtype = args_.out_dtype = args_.bias_dtype = DType::kBF16;
    args_.bias = bias_.data();
    args_.out = out_.data();
    args_.m = m;
    args_.activations = activations;
    quantize(0);
    std::size_t bytes = 0;
    must_succeed(fp4_linear_workspace(args_, &bytes, {"cuda", nullptr, 0}), "asking for a workspace");
    workspace_ = Buffer<std::uint8_t>(bytes);
    args_.workspace = workspace_.data();
    args_.workspace_bytes = bytes;
  }
  void fill(std::uint32_t seed) override {
    quantize(seed);
    x_.upload(bf16_values(x_.size(), seed + 1));
    bias_.upload(bf16_values(bias_.size(), seed + 2));
  }
  Status enqueue(cudaStream_t stream) override { return fp4_linear(args_, {"cuda", stream, 0}); }
  void clear() override {
    out_.fill(0xff);
    workspace_.fill(0xff);
  }
  [[nodiscard]] std::vector<std::uint8_t> results() const override {
    std::vector<std::uint8_t> all;
    out_.append_to(all);
    return all;
  }

 private:
  /// W, in the memory that the call knows.
  void quantize(std::uint32_t seed) {
    w_.upload(bf16_values(w_.size(), seed));
    QuantizeConfig c;
    c.format = format_;
    float* const globals = format_ == BlockFormat::kNvfp4 ? globals_.data() : nullptr;
    must_succeed(fp4_quantize_weight(c, w_.data(), DType::kBF16, kRows, k_, 1, codes_.data(), scales_.data(), globals,
                                     &args_.weight, {"cuda", nullptr, 0}),
                 "quantising a weight");
    must(cudaDeviceSynchronize(), "quantising a weight");
  }

  BlockFormat format_;
  std::int64_t m_, k_;
  Buffer<std::uint16_t> w_;
  Buffer<std::uint8_t> codes_, scales_;
  Buffer<float> globals_;
  Buffer<std::uint16_t> x_, bias_, out_;
  Buffer<std::uint8_t> workspace_;
  LinearArgs args_;
};

}  // namespace

std::vector<NamedCall> linear_calls() {
  std::vector<NamedCall> calls;
  for (const BlockFormat format : {BlockFormat::kMxfp4, BlockFormat::kNvfp4}) {
    for (const ActivationForm form : {ActivationForm::k16Bit, ActivationForm::kFp4}) {
      for (const std::int64_t m : {1, 12, 40, 300}) {
        for (const std::int64_t k : {1024, 1001}) {  // whole pieces, which some kernels multiply where they lie, and others
          calls.push_back({std::string("linear ") + name_of(format) + " " + name_of(form) + ", " + std::to_string(m) + " rows of " +
                               std::to_string(k),
                           [=] { return std::make_unique<Linear>(format, form, m, k); }, false});
        }
      }
    }
  }
  return calls;
}

}  // namespace fp4pa::direct_test
