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

}  // namespace octavo::model
