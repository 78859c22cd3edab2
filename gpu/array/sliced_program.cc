#include "gpu/array/sliced_program.h"

#include <utility>

#include "gpu/base/status.h"

namespace octavo::inline gpu {
namespace {

class ChainSlices final : public SlicedRun {
 public:
  explicit ChainSlices(std::unique_ptr<ChainRun> run) : run_(std::move(run)) {}
  absl::Status Run(StreamRef stream, int64_t, int64_t, const std::vector<const void*>& inputs,
                   void* out) override {
    return run_->Run(stream, inputs[0], {}, out);
  }

 private:
  const std::unique_ptr<ChainRun> run_;
};

class SlicedChain final : public SlicedProgram {
 public:
  explicit SlicedChain(ArrayChain chain)
      : chain_(std::make_shared<const ArrayChain>(std::move(chain))) {}
  const ArrayType& out() const override { return chain_->out; }
  int64_t parts() const override { return 1; }
  absl::StatusOr<int64_t> ScratchBytes(Device& device) const override {
    return octavo::ScratchBytes(*chain_, device);
  }
  absl::StatusOr<std::unique_ptr<SlicedRun>> Prepare(Device& device, StopFlag) const override {
    OCTAVO_ASSIGN_OR_RETURN(auto run, ChainRun::Create(chain_, device));
    return std::make_unique<ChainSlices>(std::move(run));
  }

 private:
  const std::shared_ptr<const ArrayChain> chain_;
};

}  // namespace

std::unique_ptr<const SlicedProgram> SlicedOf(ArrayChain chain) {
  return std::make_unique<SlicedChain>(std::move(chain));
}

}  // namespace octavo::inline gpu
