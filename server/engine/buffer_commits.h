#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "server/model/buffer_types.h"
#include "server/model/scan_spec.h"
#include "server/operation/operation_table.h"

namespace octavo::engine {

struct Components;

/// Fields as in octavo.v1.CommitBufferRequest.
struct BufferCommitSpec {
  std::string name;
  model::CommitOptions options;
  std::vector<std::string> axes;   // names of the buffer's dimensions, slowest first
  std::vector<double> spacing_um;  // of each dimension, 0 = not known; empty = none is known
  std::string title;
  std::optional<uint32_t> replica;
  uint64_t if_version = 0;
  std::string lease_token;
  uint64_t lease_fence = 0;
};

/// Buffers to storage: the engine's part for BufferService.CommitBuffer. The server reads the
/// buffer as a client would, with a lease until the last piece is read, and writes it as it writes
/// a volume (volume/committer.h). So the file has one version of the buffer, or the commit fails
/// and leaves nothing. The buffer stays as it is.
class BufferCommits {
 public:
  explicit BufferCommits(Components* components) : components_(*components) {}

  /// Begins an operation, or finds that of an earlier request, and returns its name. Errors known
  /// before the work begins are returned instead. Allocates nothing large; for a worker thread.
  absl::StatusOr<std::string> Commit(const BufferCommitSpec& spec, const model::Caller& caller,
                                     const operation::RequestKey& request);

 private:
  Components& components_;
};

}  // namespace octavo::engine
