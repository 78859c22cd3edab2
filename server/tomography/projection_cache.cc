#include "server/tomography/projection_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu/base/mutex.h"
#include "gpu/base/status.h"
#include "server/base/exception_to_status.h"
#include "server/source/push_projections.h"

namespace octavo::tomography {
namespace {

using storage::FrameKind;
using storage::ProjectionBox;

constexpr FrameKind kKinds[] = {FrameKind::kProjection, FrameKind::kFlat, FrameKind::kDark};

// Blocks of as many rows as the file's chunks, in memory as [block, frame, row of the block,
// column]: successive frames of a block are read in one piece.
class ChunkCache final : public storage::ProjectionInput {
 public:
  ChunkCache(std::shared_ptr<storage::ProjectionInput> input, std::shared_ptr<char> memory)
      : ProjectionInput(input->info()),
        input_(std::move(input)),
        memory_(std::move(memory)),
        block_rows_(input_->row_granularity()) {
    char* at = memory_.get();
    MutexLock lock(mutex_);
    for (const FrameKind kind : kKinds) {
      data_[static_cast<size_t>(kind)] = at;
      states_[static_cast<size_t>(kind)].assign(static_cast<size_t>(Blocks() * info_.frames(kind)),
                                                State::kMissing);
      at += info_.frames(kind) * info_.rows * RowBytes();
    }
  }

  static int64_t Bytes(const storage::ProjectionInfo& info) {
    return (info.projections + info.flats + info.darks) * info.rows * info.columns *
           SizeOf(info.dtype);
  }

 protected:
  absl::Status ReadInside(const ProjectionBox& box, void* out) override {
    const int64_t pixel = SizeOf(info_.dtype);
    auto* to = static_cast<char*>(out);
    for (int64_t block = box.first_row / block_rows_;
         block * block_rows_ < box.first_row + box.rows; ++block) {
      OCTAVO_RETURN_IF_ERROR(Load(box.kind, block, box.first_frame, box.first_frame + box.frames));
      const int64_t begin = std::max(block * block_rows_, box.first_row),
                    end = std::min((block + 1) * block_rows_, box.first_row + box.rows);
      for (int64_t f = 0; f < box.frames; ++f) {
        const char* const from = At(box.kind, block, box.first_frame + f);
        for (int64_t row = begin; row < end; ++row) {
          std::memcpy(to + ((f * box.rows + row - box.first_row) * box.columns) * pixel,
                      from + (row - block * block_rows_) * RowBytes() + box.first_column * pixel,
                      static_cast<size_t>(box.columns * pixel));
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  enum class State : uint8_t { kMissing, kLoading, kLoaded };

  int64_t Blocks() const { return (info_.rows + block_rows_ - 1) / block_rows_; }
  int64_t RowsOf(int64_t block) const {
    return std::min(block_rows_, info_.rows - block * block_rows_);
  }
  int64_t RowBytes() const { return info_.columns * SizeOf(info_.dtype); }
  char* At(FrameKind kind, int64_t block, int64_t frame) const {
    return data_[static_cast<size_t>(kind)] +
           (info_.frames(kind) * block * block_rows_ + frame * RowsOf(block)) * RowBytes();
  }

  // Reads the missing frames of [begin, end), adjacent ones together, and waits for those that
  // another thread reads: nobody decompresses a chunk that another one has.
  absl::Status Load(FrameKind kind, int64_t block, int64_t begin, int64_t end) {
    const auto set = [&](int64_t first, int64_t last, State state)
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                           State* const of_block = StatesOf(kind, block);
                           std::fill(of_block + first, of_block + last, state);
                         };
    for (int64_t first = begin, last = begin; first < end; first = last) {
      {
        MutexLock lock(mutex_);
        const State* const states = StatesOf(kind, block);
        while (states[first] == State::kLoading) cv_.Wait(lock);
        last = first + 1;
        if (states[first] == State::kLoaded) continue;
        while (last < end && states[last] == State::kMissing) ++last;
        set(first, last, State::kLoading);
      }
      absl::Status read = Read(kind, block, first, last);
      MutexLock lock(mutex_);
      set(first, last, read.ok() ? State::kLoaded : State::kMissing);
      cv_.NotifyAll();
      OCTAVO_RETURN_IF_ERROR(read);
    }
    return absl::OkStatus();
  }
  State* StatesOf(FrameKind kind, int64_t block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return states_[static_cast<size_t>(kind)].data() + block * info_.frames(kind);
  }
  absl::Status Read(FrameKind kind, int64_t block, int64_t first, int64_t last) {
    return base::ExceptionToStatus([&] {  // others wait for these frames
      return input_->Read({.kind = kind,
                           .first_frame = first,
                           .frames = last - first,
                           .first_row = block * block_rows_,
                           .rows = RowsOf(block),
                           .first_column = 0,
                           .columns = info_.columns},
                          At(kind, block, first));
    });
  }

  const std::shared_ptr<storage::ProjectionInput> input_;
  const std::shared_ptr<char> memory_;
  const int64_t block_rows_;
  char* data_[std::size(kKinds)];
  Mutex mutex_;
  CondVar cv_;
  std::vector<State> states_[std::size(kKinds)] ABSL_GUARDED_BY(mutex_);  // [block, frame]
};

}  // namespace

std::shared_ptr<storage::ProjectionInput> CacheChunks(
    std::shared_ptr<storage::ProjectionInput> input, source::ProjectionMemory* memory,
    std::string* note) {
  if (input == nullptr || memory == nullptr || input->row_granularity() <= 1) return input;
  const int64_t bytes = ChunkCache::Bytes(input->info());
  auto taken = memory->Take({.bytes = bytes, .payer = "", .field = "", .what = "chunks need"});
  if (!taken.ok()) {
    *note = absl::StrCat(
        "the file's chunks span ", input->row_granularity(), " rows and its ", bytes >> 20,
        " MiB do not fit into device.projection_bytes now: each batch of slices reads them anew");
    return input;
  }
  return std::make_shared<ChunkCache>(std::move(input), *std::move(taken));
}

}  // namespace octavo::tomography
