#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu/array/sliced_program.h"
#include "gpu/device/device.h"
#include "server/buffer/buffer_maker.h"
#include "server/buffer/buffer_table.h"
#include "server/buffer/buffer_turn.h"
#include "server/buffer/stream_ordering.h"
#include "server/memory/ledger.h"
#include "server/model/buffer_types.h"
#include "server/session/lease.h"
#include "server/volume/volume_store.h"

namespace octavo::buffer {

/// Asked again and again while long work goes on; an error ends the work and is its answer.
using MayGoOn = std::function<absl::Status()>;

/// What long work is about.
struct LongWorkSpec {
  struct Input {
    std::string name;         // buffers/... or volumes/...
    std::string lease_token;  // of the caller's lease; empty = none
    std::string field;        // of the request, for errors
    bool any_axes = false;    // takes a volume whose axes are not z, y, x
  };
  std::vector<Input> inputs;  // at least one
  std::string called;         // the call, for holders of leases
  MayGoOn may_go_on;          // null: always
  // of a buffer that is made
  std::map<std::string, std::string> labels;
  double ttl_seconds = 0;
  std::string request_id, request_digest;
};

/// Where long work gets what it needs.
struct LongWorkEnvironment {
  BufferTable& table;
  BufferTurns& turns;
  StreamOrdering& order;
  BufferMaker& maker;
  memory::Ledger* ledger = nullptr;
  volume::VolumeStore* volumes = nullptr;
};

/// Work on arrays that may take seconds. It has a stream of one device for itself, so that nothing
/// else waits behind it, and shared leases of its inputs until it ends, so that they stay as they
/// are. Its programs are enqueued slice by slice; the calling thread waits for each slice, and
/// looks in between whether to go on, and whether the inputs still are what they were. It takes no
/// place in the order of all work (README.md) before its result is a buffer, which then appears as
/// one that was just written.
class LongWork {
 public:
  /// Finds the inputs, takes their leases and a device that has all of them. The errors of ApplyOp;
  /// InvalidArgument (BAD_SHAPE) for a volume whose axes are not z, y, x.
  static absl::StatusOr<std::unique_ptr<LongWork>> Begin(const LongWorkEnvironment& environment,
                                                         LongWorkSpec spec,
                                                         const model::Caller& caller);
  /// Waits for what is still enqueued.
  ~LongWork();
  LongWork(const LongWork&) = delete;
  LongWork& operator=(const LongWork&) = delete;

  const LongWorkSpec& spec() const { return spec_; }
  /// Of the inputs.
  const std::vector<ArrayType>& types() const { return types_; }
  /// Runs a program on the inputs of these numbers (empty: all) and returns the bytes of its
  /// output.
  absl::StatusOr<std::vector<char>> Measure(const SlicedProgram& program,
                                            const std::vector<size_t>& inputs = {});
  /// Runs a program on all inputs whose output becomes a buffer, on all devices of the first input.
  absl::StatusOr<model::BufferStatus> Make(const SlicedProgram& program);

 private:
  struct Operand;
  class Charge;
  LongWork(const LongWorkEnvironment& environment, LongWorkSpec spec, const model::Caller& caller);
  /// The input as it is now.
  absl::StatusOr<Operand> Find(const LongWorkSpec::Input& input);
  absl::StatusOr<Operand> FindVolume(const LongWorkSpec::Input& input);
  absl::Status TakeLeases();
  absl::Status ChooseDevice();
  /// OK while the work may go on and the inputs are what they were.
  absl::Status Check();
  /// The stream, behind the last writes of the inputs and the accesses to what is written (may be
  /// null), and the flag.
  absl::Status OpenStream(AccessTracker* written);
  /// Returns once all has passed.
  absl::Status Run(const SlicedProgram& program, const std::vector<size_t>& inputs, void* out,
                   AccessTracker* written);
  absl::Status RunSlices(SlicedRun& run, int64_t parts, const std::vector<const void*>& inputs,
                         void* out);
  /// Waits until the stream has passed; meanwhile looks whether to go on. Returns when it has,
  /// whatever the answer.
  absl::Status WaitForSlice();

  LongWorkEnvironment environment_;
  const LongWorkSpec spec_;
  const model::Caller caller_;
  std::vector<session::LeaseTable::Guard> guards_;
  std::vector<Operand> operands_;
  std::vector<ArrayType> types_;
  int device_ = 0;
  PinnedBuffer stop_;  // the flag that programs look at
  Stream stream_;      // ends before what it uses
};

}  // namespace octavo::buffer
