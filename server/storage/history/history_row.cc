#include "server/storage/history/history_row.h"

namespace octavo::storage {

const char* Name(HistoryKind kind) {
  switch (kind) {
    case HistoryKind::kScan: return "scan";
    case HistoryKind::kJob: return "job";
    case HistoryKind::kCommit: return "commit";
  }
  return "?";
}

}  // namespace octavo::storage
