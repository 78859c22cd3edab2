#include "gpu/array/array_program.h"

#include <utility>

#include "gpu/base/status.h"

namespace octavo::inline gpu {
namespace {

class ChainProgramRun final : public ArrayProgramRun {
 public:
  explicit ChainProgramRun(std::unique_ptr<ChainRun> run) : run_(std::move(run)) {}
  absl::Status Run(StreamRef stream, const std::vector<const void*>& inputs, void* out) override {
    return run_->Run(stream, inputs[0], {inputs.begin() + 1, inputs.end()}, out);
  }

 private:
  const std::unique_ptr<ChainRun> run_;
};

class ChainProgram final : public ArrayProgram {
 public:
  explicit ChainProgram(ArrayChain chain)
      : chain_(std::make_shared<const ArrayChain>(std::move(chain))) {}
  const ArrayType& out() const override { return chain_->out; }
  absl::StatusOr<int64_t> ScratchBytes(Device& device) const override {
    return octavo::ScratchBytes(*chain_, device);
  }
  absl::StatusOr<std::unique_ptr<ArrayProgramRun>> Prepare(Device& device) const override {
    OCTAVO_ASSIGN_OR_RETURN(auto run, ChainRun::Create(chain_, device));
    return std::make_unique<ChainProgramRun>(std::move(run));
  }

 private:
  const std::shared_ptr<const ArrayChain> chain_;
};

}  // namespace

std::unique_ptr<const ArrayProgram> ProgramOf(ArrayChain chain) {
  return std::make_unique<ChainProgram>(std::move(chain));
}

}  // namespace octavo::inline gpu
