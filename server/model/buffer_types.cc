#include "server/model/buffer_types.h"

namespace octavo::model {

const char* Name(BufferState state) {
  switch (state) {
    case BufferState::kReady: return "READY";
    case BufferState::kWriting: return "WRITING";
    case BufferState::kPartial: return "PARTIAL";
    case BufferState::kLost: return "LOST";
    case BufferState::kUninitialized: return "UNINITIALIZED";
  }
  return "?";
}

const char* Name(ImportKind kind) {
  switch (kind) {
    case ImportKind::kDefault: return "UNSPECIFIED";
    case ImportKind::kHostMemfd: return "HOST_MEMFD";
    case ImportKind::kCudaVmm: return "CUDA_VMM";
  }
  return "?";
}

}  // namespace octavo::model
